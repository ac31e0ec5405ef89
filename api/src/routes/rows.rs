//! The routes that give rows. Rows are joined as bytes: what was published is what is served, to the last digit.

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;

use crate::dto::PipelineInfo;
use crate::error::ApiError;
use crate::query::{self, Cursor, CursorKind, Format};
use crate::router::{App, Rows};
use crate::service::{OpenPage, Service, ServiceError, WindowsPage};

/// Rows below this number are published, as far as the answer knows.
pub(crate) const PUBLISHED: &str = "unisono-published";
/// Where to go on; absent at the end.
pub(crate) const NEXT_CURSOR: &str = "unisono-next-cursor";
pub(crate) const NDJSON: &str = "application/x-ndjson";

type Name = Result<Path<String>, PathRejection>;
pub(crate) type Pairs = Result<Query<Vec<(String, String)>>, QueryRejection>;

pub(crate) async fn windows(
    State(app): State<App>,
    name: Name,
    pairs: Pairs,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    stream(app, CursorKind::Windows, name, pairs, &headers).await
}

pub(crate) async fn dead_letters(
    State(app): State<App>,
    name: Name,
    pairs: Pairs,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    stream(app, CursorKind::DeadLetters, name, pairs, &headers).await
}

pub(crate) async fn open(
    State(app): State<App>,
    name: Name,
    pairs: Pairs,
) -> Result<Response, ApiError> {
    let name = pipeline_name(name)?;
    let query = query::parse_open(&pairs_of(pairs)?)?;
    let page = app.query({
        let name = name.clone();
        move |service| {
            find_pipeline(service, &name)?;
            Ok(open_body(&name, &service.open_windows(&name, &query)?))
        }
    });
    page.await
}

async fn stream(
    app: App,
    kind: CursorKind,
    name: Name,
    pairs: Pairs,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let name = pipeline_name(name)?;
    let pairs = pairs_of(pairs)?;
    let accepted = if accepts_ndjson(headers) {
        Format::Ndjson
    } else {
        Format::Json
    };
    let answer = app.query(move |service| {
        let pipeline = find_pipeline(service, &name)?;
        let request = query::parse(&pairs, &pipeline, kind)?;
        let query = &request.query;
        let page = match kind {
            CursorKind::Windows => service.windows(&name, query)?,
            CursorKind::DeadLetters => service.dead_letters(&name, query.after, query.limit)?,
        };
        let incarnation = pipeline.incarnation;
        let next = page.next.map(|seq| {
            Cursor {
                kind,
                incarnation,
                seq,
            }
            .to_string()
        });
        Ok(match request.format.unwrap_or(accepted) {
            Format::Json => json_body(&name, &page, next.as_deref()),
            Format::Ndjson => ndjson_body(&page, next.as_deref()),
        })
    });
    answer.await
}

pub(crate) fn pairs_of(pairs: Pairs) -> Result<Vec<(String, String)>, ApiError> {
    pairs.map(|Query(pairs)| pairs).map_err(|rejection| {
        ApiError::bad_query(rejection.body_text(), "escape the parameters as in a form")
    })
}

fn pipeline_name(name: Name) -> Result<String, ApiError> {
    name.map(|Path(name)| name).map_err(|rejection| {
        ApiError::bad_query(rejection.body_text(), "escape the pipeline's name as UTF-8")
    })
}

fn find_pipeline(service: &dyn Service, name: &str) -> Result<PipelineInfo, ApiError> {
    service.pipeline(name).ok_or_else(|| {
        if !service.knows_all() {
            let reason = format!(
                "pipeline {name} is not known here, and this node has not come to the end of the agreed log yet"
            );
            return ServiceError::Unavailable(reason).into();
        }
        let known: Vec<_> = service
            .pipelines()
            .into_iter()
            .map(|known| known.name)
            .collect();
        ApiError::unknown_pipeline(name, &known)
    })
}

fn accepts_ndjson(headers: &HeaderMap) -> bool {
    let accepted = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok());
    accepted
        .flat_map(|value| value.split(','))
        .filter_map(|media_type| media_type.split(';').next())
        .any(|media_type| media_type.trim().eq_ignore_ascii_case(NDJSON))
}

fn json_body(pipeline: &str, page: &WindowsPage, next: Option<&str>) -> Rows {
    let capacity = page.rows.iter().map(|row| row.len() + 1).sum::<usize>() + 200;
    let mut body = Vec::with_capacity(capacity);
    let (name, published) = (json(&pipeline), page.published);
    let head = format!(r#"{{"pipeline":{name},"published":{published},"rows":["#);
    body.extend_from_slice(head.as_bytes());
    append_rows(&mut body, &page.rows);
    body.extend_from_slice(format!(r#"],"next_cursor":{}}}"#, json(&next)).as_bytes());
    body_of("application/json", body)
}

fn append_rows(body: &mut Vec<u8>, rows: &[Bytes]) {
    for (at, row) in rows.iter().enumerate() {
        if at > 0 {
            body.push(b',');
        }
        body.extend_from_slice(row);
    }
}

fn ndjson_body(page: &WindowsPage, next: Option<&str>) -> Rows {
    let mut body = Vec::with_capacity(page.rows.iter().map(|row| row.len() + 1).sum());
    for row in &page.rows {
        body.extend_from_slice(row);
        body.push(b'\n');
    }
    let mut response = body_of(NDJSON, body);
    response
        .headers_mut()
        .insert(PUBLISHED, HeaderValue::from(page.published));
    if let Some(next) = next.and_then(|next| HeaderValue::from_str(next).ok()) {
        response.headers_mut().insert(NEXT_CURSOR, next);
    }
    response
}

fn open_body(pipeline: &str, page: &OpenPage) -> Rows {
    let mut body = Vec::new();
    let head = format!(
        r#"{{"pipeline":{},"tick":{},"watermark":{},"truncated":{},"rows":["#,
        json(&pipeline),
        json(&page.tick),
        json(&page.watermark),
        page.next.is_some(),
    );
    body.extend_from_slice(head.as_bytes());
    append_rows(&mut body, &page.rows);
    let next = page.next.map(|next| next.to_string());
    body.extend_from_slice(format!(r#"],"next_cursor":{}}}"#, json(&next)).as_bytes());
    body_of("application/json", body)
}

fn body_of(content_type: &'static str, body: Vec<u8>) -> Rows {
    let mut rows = Rows::new(body);
    let content_type = HeaderValue::from_static(content_type);
    rows.headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    rows
}

// Texts, numbers and their absence: none of them can fail to be written.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}
