//! Keeps librdkafka's clients in tokens where brokers ask for OAUTHBEARER. The library asks for them only when it is polled,
//! which nobody does with all of its clients; what it has of its own for that needs another C library.
#![allow(unsafe_code)]

use std::ffi::{CString, NulError, c_char};
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime};

use rdkafka::admin::AdminClient;
use rdkafka::bindings as native;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::producer::{BaseProducer, Producer, ProducerContext};
use rdkafka::{ClientConfig, ClientContext};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::sleep;

use super::security::{Bearer, Token};
use crate::threads::{Role, lock, spawn};

/// How often it is looked whether a client is still there and its token fresh.
const LOOK: Duration = Duration::from_secs(1);

/// How clients are set up, and what they need beside.
pub(crate) struct Clients {
    pub(super) config: ClientConfig,
    pub(super) bearer: Option<Arc<Bearer>>,
}

impl Deref for Clients {
    type Target = ClientConfig;

    fn deref(&self) -> &ClientConfig {
        &self.config
    }
}

impl DerefMut for Clients {
    fn deref_mut(&mut self) -> &mut ClientConfig {
        &mut self.config
    }
}

impl Clients {
    /// Sees to it that a client has what it needs from now on: without this it is not admitted by tokens.
    pub(crate) fn keep<C: Native + 'static>(&self, client: C) -> Arc<C> {
        let client = Arc::new(client);
        if let Some(bearer) = &self.bearer {
            let kept: Arc<dyn Native> = client.clone();
            hand_over((Arc::downgrade(&kept), Arc::clone(bearer)));
        }
        client
    }
}

/// A client of the library's.
pub(crate) trait Native: Send + Sync {
    /// Lives as long as the client does.
    fn handle(&self) -> *mut native::rd_kafka_t;
}

impl<C: ConsumerContext> Native for BaseConsumer<C> {
    fn handle(&self) -> *mut native::rd_kafka_t {
        self.client().native_ptr()
    }
}

impl<C: ProducerContext> Native for BaseProducer<C> {
    fn handle(&self) -> *mut native::rd_kafka_t {
        self.client().native_ptr()
    }
}

impl<C: ClientContext> Native for AdminClient<C> {
    fn handle(&self) -> *mut native::rd_kafka_t {
        self.inner().native_ptr()
    }
}

type Kept = (Weak<dyn Native>, Arc<Bearer>);

/// Gives a client to the thread that keeps all of them, which is started when there is the first.
fn hand_over(mut kept: Kept) {
    static KEEPER: Mutex<Option<UnboundedSender<Kept>>> = Mutex::new(None);
    let mut keeper = lock(&KEEPER);
    if let Some(sender) = &*keeper {
        match sender.send(kept) {
            Ok(()) => return,
            Err(back) => kept = back.0,
        }
    }
    let (sender, receiver) = unbounded_channel();
    // Its own receiver is there.
    let _ = sender.send(kept);
    let started = tokio::runtime::Builder::new_current_thread()
        .thread_name(Role::KafkaTokens.entry().name)
        .max_blocking_threads(2)
        .enable_io()
        .enable_time()
        .build()
        .and_then(|runtime| {
            spawn(Role::KafkaTokens, None, move || {
                LocalSet::new().block_on(&runtime, keep_all(receiver));
            })
        });
    match started {
        Ok(_) => *keeper = Some(sender),
        // The next client tries again; this one is not admitted, and says so.
        Err(error) => tracing::warn!(%error, "no thread for kafka's tokens"),
    }
}

async fn keep_all(mut clients: UnboundedReceiver<Kept>) {
    while let Some((client, bearer)) = clients.recv().await {
        spawn_local(keep_one(client, bearer));
    }
}

/// As long as the client is there.
async fn keep_one(client: Weak<dyn Native>, bearer: Arc<Bearer>) {
    let mut last: Option<Token> = None;
    while client.strong_count() > 0 {
        if !last.as_ref().is_some_and(Token::is_fresh) {
            let token = bearer.token().await;
            let Some(client) = client.upgrade() else {
                return;
            };
            let given = match &token {
                Ok(token) => give(&*client, token, &bearer.extensions),
                Err(error) => Err(error.clone()),
            };
            if let Err(reason) = given {
                tracing::debug!(reason, "a kafka client has no token");
                refuse(&*client, &reason);
            }
            last = token.ok();
        }
        sleep(LOOK).await;
    }
}

/// Gives a client its token.
fn give(client: &dyn Native, token: &Token, extensions: &[(String, String)]) -> Result<(), String> {
    let wrong = |_: NulError| "a token, its principal or an extension holds a zero byte".to_owned();
    let value = CString::new(token.value.reveal()).map_err(wrong)?;
    let principal = CString::new(token.principal.as_str()).map_err(wrong)?;
    let names = extensions.iter().flat_map(|(name, value)| [name, value]);
    let names = names.map(|text| CString::new(text.as_str()));
    let texts: Vec<CString> = names.collect::<Result<_, _>>().map_err(wrong)?;
    let mut names: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let end = now.unwrap_or_default() + token.left();
    let end = i64::try_from(end.as_millis()).unwrap_or(i64::MAX);
    let mut error = [0_u8; 256];
    let extensions = match names.is_empty() {
        true => ptr::null_mut(),
        false => names.as_mut_ptr(),
    };
    // SAFETY: the client lives; all texts end with a zero byte, live longer than the call and are copied by it; so many
    // names and values are there, and the error's room is as large as is said.
    let code = unsafe {
        native::rd_kafka_oauthbearer_set_token(
            client.handle(),
            value.as_ptr(),
            end,
            principal.as_ptr(),
            extensions,
            names.len(),
            error.as_mut_ptr().cast(),
            error.len(),
        )
    };
    if code == native::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
        return Ok(());
    }
    let text = error.split(|byte| *byte == 0).next().unwrap_or_default();
    Err(String::from_utf8_lossy(text).into_owned())
}

/// Says to a client why it has none: it tells that as its error.
fn refuse(client: &dyn Native, reason: &str) {
    if let Ok(reason) = CString::new(reason) {
        // SAFETY: the client lives; the text ends with a zero byte and is copied.
        unsafe { native::rd_kafka_oauthbearer_set_token_failure(client.handle(), reason.as_ptr()) };
    }
}
