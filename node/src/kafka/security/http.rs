//! One question to a token endpoint.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::{LinkError, Secret, Tls, open_stream};

const WITHIN: Duration = Duration::from_secs(5);
/// No answer is longer.
const MOST: usize = 1 << 20;

/// Sends a form by POST; gives the status and what came with it. An error says what went wrong, not where.
pub async fn post(
    url: &Uri,
    tls: &Tls,
    user: &str,
    password: &Secret,
    form: String,
) -> Result<(u16, Bytes), String> {
    let request = request(url, user, password, form)?;
    let answered = timeout(WITHIN, exchange(url, tls, request)).await;
    answered.unwrap_or_else(|_| Err(silent(&format!("nothing within {WITHIN:?}"))))
}

/// One text for all that only says that nobody answers: a new one would be told as news.
fn silent(detail: &str) -> String {
    tracing::debug!(detail, "a token endpoint does not answer");
    "it does not answer".to_owned()
}

async fn exchange(
    url: &Uri,
    tls: &Tls,
    request: Request<Full<Bytes>>,
) -> Result<(u16, Bytes), String> {
    let is_secure = url.scheme_str() == Some("https");
    let host = url.host().unwrap_or_default();
    let port = url.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let tls = is_secure.then_some(tls);
    let stream = open_stream(bare, port, tls, "https.ca.location").await;
    let stream = stream.map_err(|error| match error {
        LinkError::Io(error) => silent(&error.to_string()),
        other => other.to_string(),
    })?;
    let failed = |error: hyper::Error| silent(&format!("{error:?}"));
    let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(failed)?;
    let asked = async {
        let answer = sender.send_request(request).await.map_err(failed)?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), MOST).collect().await;
        let body = body.map_err(|error| silent(&error.to_string()))?;
        Ok((status, body.to_bytes()))
    };
    // Who asked says how it ended.
    let driven = async {
        let _ = connection.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        answer = asked => answer,
        () = driven => Err(silent("the connection ended")),
    }
}

fn request(
    url: &Uri,
    user: &str,
    password: &Secret,
    form: String,
) -> Result<Request<Full<Bytes>>, String> {
    let basic = STANDARD.encode(format!("{user}:{}", password.reveal()));
    let basic = HeaderValue::try_from(format!("Basic {basic}"));
    let mut basic = basic.map_err(|error| error.to_string())?;
    basic.set_sensitive(true);
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    Request::post(path)
        .header(HOST, authority)
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header(AUTHORIZATION, basic)
        .body(Full::new(Bytes::from(form)))
        .map_err(|error| error.to_string())
}
