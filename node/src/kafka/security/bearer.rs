//! Tokens for OAUTHBEARER: from an endpoint that gives them to those who know a client's secret, or made here and signed by
//! nobody, for trying things out.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::Uri;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::tls::Pem;
use super::{Refusal, Secret, Tls, choice, http, truth};

/// Where neither the endpoint nor the token says how long it counts.
const SHORT_LIFE: Duration = Duration::from_secs(300);
/// Of what an endpoint says, so much is told.
const TOLD: usize = 200;

/// What was set, as it was read.
#[derive(Clone, Debug, Default)]
pub(super) struct Properties {
    oidc: bool,
    client: Option<String>,
    secret: Option<Secret>,
    endpoint: Option<Uri>,
    scope: Option<String>,
    extensions: Vec<(String, String)>,
    config: Option<String>,
    unsecured: bool,
    tls: Tls,
}

impl Properties {
    /// Takes in a property; `None`: it is none of these.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Option<Result<(), String>> {
        let mut done = Ok(());
        match name {
            "sasl.oauthbearer.method" => {
                done = choice(value, &[("oidc", true), ("default", false)])
                    .map(|oidc| self.oidc = oidc);
            }
            "sasl.oauthbearer.client.id" => self.client = Some(value.to_owned()),
            "sasl.oauthbearer.client.secret" => self.secret = Some(Secret::new(value)),
            "sasl.oauthbearer.token.endpoint.url" => {
                done = endpoint(value).map(|endpoint| self.endpoint = Some(endpoint));
            }
            "sasl.oauthbearer.scope" => self.scope = Some(value.to_owned()),
            "sasl.oauthbearer.extensions" => {
                done = extensions(value).map(|extensions| self.extensions = extensions);
            }
            "sasl.oauthbearer.config" => self.config = Some(value.to_owned()),
            "enable.sasl.oauthbearer.unsecure.jwt" => {
                done = truth(value).map(|unsecured| self.unsecured = unsecured);
            }
            "https.ca.location" => {
                let at = Pem::At("https.ca.location", PathBuf::from(value));
                self.tls.authorities = Some(at).filter(|_| value != "probe");
            }
            "https.ca.pem" => {
                self.tls.authorities = Some(Pem::Text("https.ca.pem", Secret::new(value)));
            }
            _ => return None,
        }
        Some(done)
    }

    pub(super) fn finish(self) -> Result<Bearer, Refusal> {
        let lacks = |name| {
            (
                name,
                "is needed with sasl.oauthbearer.method = \"oidc\"".to_owned(),
            )
        };
        if self.unsecured {
            let config = self.config.unwrap_or_default();
            let (claims, extensions) =
                Claims::read(&config).map_err(|reason| ("sasl.oauthbearer.config", reason))?;
            return Ok(Bearer::new(From::Claims(claims), extensions));
        }
        if !self.oidc {
            let reason = "is needed with OAUTHBEARER; write \"oidc\", and where tokens come from";
            return Err(("sasl.oauthbearer.method", reason.to_owned()));
        }
        let endpoint = Endpoint {
            url: self
                .endpoint
                .ok_or_else(|| lacks("sasl.oauthbearer.token.endpoint.url"))?,
            client: self
                .client
                .ok_or_else(|| lacks("sasl.oauthbearer.client.id"))?,
            secret: self
                .secret
                .ok_or_else(|| lacks("sasl.oauthbearer.client.secret"))?,
            scope: self.scope,
            tls: self.tls,
        };
        Ok(Bearer::new(From::Endpoint(endpoint), self.extensions))
    }
}

/// What a broker takes for who we are.
#[derive(Clone, Debug)]
pub struct Token {
    pub value: Secret,
    /// Whose it is, as far as is known.
    pub principal: String,
    pub fetched: Instant,
    /// How long it counts from then on.
    pub life: Duration,
}

impl Token {
    /// How long it still counts.
    pub fn left(&self) -> Duration {
        self.life.saturating_sub(self.fetched.elapsed())
    }

    /// Whether it is too early to ask for another.
    pub fn is_fresh(&self) -> bool {
        self.left() > self.life / 5
    }
}

/// Gives tokens; keeps the last one until shortly before its end.
pub struct Bearer {
    from: From,
    /// What is said beside the token.
    pub extensions: Vec<(String, String)>,
    kept: Mutex<Option<Token>>,
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bearer")
            .field("from", &self.from)
            .finish_non_exhaustive()
    }
}

/// Where tokens come from.
#[derive(Clone, Debug)]
enum From {
    Endpoint(Endpoint),
    Claims(Claims),
}

#[derive(Clone, Debug)]
struct Endpoint {
    url: Uri,
    client: String,
    secret: Secret,
    scope: Option<String>,
    tls: Tls,
}

impl Bearer {
    fn new(from: From, extensions: Vec<(String, String)>) -> Self {
        Self {
            from,
            extensions,
            kept: Mutex::default(),
        }
    }

    /// A token that counts. An error says what is wrong and where, the same from try to try.
    pub async fn token(&self) -> Result<Token, String> {
        let mut kept = self.kept.lock().await;
        if let Some(token) = kept.as_ref().filter(|token| token.is_fresh()) {
            return Ok(token.clone());
        }
        let made = match &self.from {
            From::Endpoint(endpoint) => endpoint.fetch().await,
            From::Claims(claims) => Ok(claims.token()),
        };
        match (made, &*kept) {
            (Ok(token), _) => Ok(kept.insert(token).clone()),
            // It is asked for early enough to fail a few times.
            (Err(_), Some(old)) if !old.left().is_zero() => Ok(old.clone()),
            (Err(error), _) => Err(error),
        }
    }

    /// The broker does not want the one that was given last.
    pub async fn forget(&self) {
        *self.kept.lock().await = None;
    }
}

impl Endpoint {
    async fn fetch(&self) -> Result<Token, String> {
        let mut form = "grant_type=client_credentials".to_owned();
        if let Some(scope) = &self.scope {
            form.push_str("&scope=");
            form.push_str(&encoded(scope));
        }
        let fetched = Instant::now();
        let answer = http::post(&self.url, &self.tls, &self.client, &self.secret, form).await;
        let read = answer.and_then(|(status, body)| match status {
            200 => self.read(&body, fetched),
            _ => Err(format!("it answers {status}{}", told(&body))),
        });
        read.map_err(|reason| {
            format!(
                "no token from {} (sasl.oauthbearer.token.endpoint.url): {reason}",
                self.url
            )
        })
    }

    fn read(&self, body: &[u8], fetched: Instant) -> Result<Token, String> {
        let answer: Value =
            serde_json::from_slice(body).map_err(|_| "what it answers is not JSON".to_owned())?;
        let value = answer["access_token"].as_str().filter(|it| is_token(it));
        let value = value.ok_or("its answer holds no access_token")?;
        let claims = claims(value);
        let said = answer["expires_in"].as_f64();
        let life = said.or_else(|| Some(claims["exp"].as_f64()? - now()));
        let life = life.and_then(|life| Duration::try_from_secs_f64(life).ok());
        let principal = claims["sub"].as_str().unwrap_or(&self.client);
        Ok(Token {
            value: Secret::new(value),
            principal: principal.to_owned(),
            fetched,
            life: life.unwrap_or(SHORT_LIFE),
        })
    }
}

/// As RFC 6750 writes it: it cannot end the field that it is put in.
fn is_token(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    !text.is_empty() && text.bytes().all(allowed)
}

/// What a token says, if it is one that can be read (RFC 7519). It is for the broker to judge.
fn claims(token: &str) -> Value {
    let part = token.split('.').nth(1).unwrap_or_default();
    let part = URL_SAFE_NO_PAD.decode(part.trim_end_matches('='));
    let claims = part
        .ok()
        .and_then(|part| serde_json::from_slice(&part).ok());
    claims.unwrap_or(Value::Null)
}

/// What an endpoint says of an error (RFC 6749, 5.2).
fn told(body: &[u8]) -> String {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let said = ["error", "error_description"].map(|field| answer[field].as_str());
    let said: Vec<&str> = said.into_iter().flatten().collect();
    let said: String = said.join(", ").chars().take(TOLD).collect();
    match said.is_empty() {
        true => String::new(),
        false => format!(": {said}"),
    }
}

fn now() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

/// A value of a form.
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'*' => {
                encoded.push(char::from(byte));
            }
            b' ' => encoded.push('+'),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

fn endpoint(value: &str) -> Result<Uri, String> {
    let wrong = || "must be the URL of a token endpoint, https://host/path".to_owned();
    let url: Uri = value.parse().map_err(|_| wrong())?;
    let known = matches!(url.scheme_str(), Some("http" | "https"));
    // A name and password in it would be shown.
    let plain = url.authority().is_some_and(|it| !it.as_str().contains('@'));
    (known && plain && url.host().is_some_and(|host| !host.is_empty()))
        .then_some(url)
        .ok_or_else(wrong)
}

/// Reads `name=value`, several with commas. RFC 7628 lets names have letters alone; "auth" is the token's.
fn extensions(value: &str) -> Result<Vec<(String, String)>, String> {
    let parts = value.split(',').map(str::trim).filter(|it| !it.is_empty());
    parts.map(extension).collect()
}

fn extension(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').unwrap_or_default();
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic());
    let is_value = value
        .bytes()
        .all(|byte| matches!(byte, b' '..=b'~' | b'\t' | b'\r' | b'\n'));
    match is_name && name != "auth" && is_value {
        true => Ok((name.to_owned(), value.to_owned())),
        false => {
            Err("must be name=value, several with commas; names have letters alone".to_owned())
        }
    }
}

/// What a token says that nobody signs (RFC 7515, A.5).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claims {
    principal_by: String,
    principal: String,
    scope_by: String,
    scope: Vec<String>,
    life: Duration,
}

impl Claims {
    /// Reads librdkafka's `name=value` pairs, with the extensions among them.
    fn read(config: &str) -> Result<(Self, Vec<(String, String)>), String> {
        let mut claims = Self {
            principal_by: "sub".to_owned(),
            principal: String::new(),
            scope_by: "scope".to_owned(),
            scope: Vec::new(),
            life: Duration::from_secs(3600),
        };
        let mut extensions = Vec::new();
        for pair in config.split_whitespace() {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "principalClaimName" => claims.principal_by = value.to_owned(),
                "principal" => claims.principal = value.to_owned(),
                "scopeClaimName" => claims.scope_by = value.to_owned(),
                "scope" => claims.scope = value.split(',').map(str::to_owned).collect(),
                "lifeSeconds" => {
                    let life = value.parse().ok().filter(|seconds| *seconds > 0);
                    let life = life.ok_or("lifeSeconds must be a number of seconds")?;
                    claims.life = Duration::from_secs(life);
                }
                _ => match name.strip_prefix("extension_") {
                    Some(name) => extensions.push(extension(&format!("{name}={value}"))?),
                    None => return Err(format!("{name} is not known in it")),
                },
            }
        }
        match claims.principal.is_empty() {
            true => Err("must say principal=NAME".to_owned()),
            false => Ok((claims, extensions)),
        }
    }

    fn token(&self) -> Token {
        let (fetched, now) = (Instant::now(), now());
        let mut claims = json!({ "iat": now, "exp": now + self.life.as_secs_f64() });
        claims[&self.principal_by] = json!(self.principal);
        if !self.scope.is_empty() {
            claims[&self.scope_by] = json!(self.scope);
        }
        let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
        let body = URL_SAFE_NO_PAD.encode(claims.to_string());
        Token {
            value: Secret::new(format!("{head}.{body}.")),
            principal: self.principal.clone(),
            fetched,
            life: self.life,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn endpoint_of(url: &str) -> Endpoint {
        Endpoint {
            url: url.parse().unwrap(),
            client: "me".to_owned(),
            secret: Secret::new("hunter2"),
            scope: None,
            tls: Tls::default(),
        }
    }

    #[test]
    fn a_token_that_nobody_signs_says_whose_it_is() {
        let config = "principal=admin scope=a,b lifeSeconds=60 extension_traceId=7";
        let (claims, extensions) = Claims::read(config).unwrap();
        assert_eq!(extensions, [("traceId".to_owned(), "7".to_owned())]);
        let token = claims.token();
        assert_eq!(token.life, Duration::from_secs(60));
        assert!(token.value.reveal().starts_with("eyJhbGciOiJub25lIn0."));
        let said = super::claims(token.value.reveal());
        assert_eq!(
            (&said["sub"], &said["scope"]),
            (&json!("admin"), &json!(["a", "b"]))
        );
        for wrong in [
            "",
            "scope=a",
            "principal=a lifeSeconds=x",
            "principal=a what=b",
        ] {
            assert!(Claims::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_endpoints_answer_is_read_with_its_life() {
        let endpoint = endpoint_of("https://host/token");
        let body = br#"{"access_token":"abc.def","expires_in":100}"#;
        let token = endpoint.read(body, Instant::now()).unwrap();
        assert_eq!(
            (token.value.reveal(), token.principal.as_str()),
            ("abc.def", "me")
        );
        assert_eq!(token.life, Duration::from_secs(100));
        assert!(token.is_fresh());
        let old = Instant::now().checked_sub(Duration::from_secs(81)).unwrap();
        assert!(!endpoint.read(body, old).unwrap().is_fresh());
        // Not one that would end the field that it goes into.
        let body = br#"{"access_token":"abc\u0001auth=x"}"#;
        assert!(endpoint.read(body, Instant::now()).is_err());
        assert_eq!(
            told(br#"{"error":"invalid_client","error_description":"no"}"#),
            ": invalid_client, no"
        );
        assert_eq!(told(b"<html>"), "");
    }

    #[test]
    fn what_an_endpoint_is_asked_for_cannot_say_more() {
        assert_eq!(encoded("a b&c=d/ü"), "a+b%26c%3Dd%2F%C3%BC");
        for wrong in [
            "host/path",
            "ftp://host/",
            "https://",
            "https://me:pass@host/",
        ] {
            assert!(super::endpoint(wrong).is_err(), "{wrong}");
        }
        for wrong in ["a", "auth=x", "a1=x", "a=\u{1}"] {
            assert!(super::extensions(wrong).is_err(), "{wrong}");
        }
        assert!(!format!("{:?}", endpoint_of("https://host/")).contains("hunter2"));
    }
}
