//! Says who we are, when a connection begins and again before the broker's patience ends (KIP-368).

use std::time::{Duration, Instant};

use super::super::messages::{
    Api, read_sasl_authenticate, read_sasl_handshake, write_sasl_authenticate, write_sasl_handshake,
};
use super::{Connection, ConnectionError};
use crate::kafka::security::{Exchange, Mechanism, Sasl, SaslError, nonce};

/// Kafka's codes.
const UNSUPPORTED_MECHANISM: i16 = 33;
const ILLEGAL_STATE: i16 = 34;
const FAILED: i16 = 58;
/// Of a session's time, in percent, when it is renewed.
const RENEWED_AT: u32 = 85;
/// Brokers refuse who comes again sooner than after a second.
const LEAST: Duration = Duration::from_millis(1100);
/// No mechanism here takes more steps.
const MOST_STEPS: usize = 4;

impl Connection {
    /// Says who we are, if that is to be said.
    pub(super) async fn authenticate(&mut self) -> Result<(), ConnectionError> {
        let security = std::sync::Arc::clone(&self.security);
        let Some(sasl) = &security.sasl else {
            return Ok(());
        };
        let mechanism = sasl.mechanism();
        self.shake_hands(mechanism).await?;
        let (exchange, first) = match sasl {
            Sasl::Password { user, password, .. } => {
                Exchange::by_password(mechanism, user, password, nonce())
            }
            Sasl::Token(bearer) => {
                let token = bearer.token().await.map_err(ConnectionError::Token)?;
                Exchange::by_token(&token, &bearer.extensions)
            }
        };
        let begun = Instant::now();
        let lifetime = self.step_through(mechanism, exchange, first).await;
        if let (Err(ConnectionError::Sasl(_)), Sasl::Token(bearer)) = (&lifetime, sasl) {
            bearer.forget().await;
        }
        self.renewal = lifetime?.map(|lifetime| begun + (lifetime * RENEWED_AT / 100).max(LEAST));
        Ok(())
    }

    async fn shake_hands(&mut self, mechanism: Mechanism) -> Result<(), ConnectionError> {
        let version = self.version(Api::SaslHandshake)?;
        let asked = self.exchange(Api::SaslHandshake, version, |to| {
            write_sasl_handshake(to, mechanism.name());
        });
        match read_sasl_handshake(&asked.await?)? {
            (0, _) => Ok(()),
            (UNSUPPORTED_MECHANISM, offered) => Err(ConnectionError::Sasl(SaslError::Mechanism {
                asked: mechanism.name(),
                offered: offered.join(", "),
            })),
            (ILLEGAL_STATE, _) => Err(ConnectionError::Sasl(SaslError::NotAsked)),
            (code, _) => Err(ConnectionError::Refused(Api::SaslHandshake, code)),
        }
    }

    /// Gives how long the broker is content.
    async fn step_through(
        &mut self,
        mechanism: Mechanism,
        mut exchange: Exchange,
        mut message: Vec<u8>,
    ) -> Result<Option<Duration>, ConnectionError> {
        let version = self.version(Api::SaslAuthenticate)?;
        for _ in 0..MOST_STEPS {
            let asked = self.exchange(Api::SaslAuthenticate, version, |to| {
                write_sasl_authenticate(to, &message);
            });
            let answer = asked.await?;
            let told = read_sasl_authenticate(&answer)?;
            match told.error {
                0 => {}
                FAILED => return Err(SaslError::denied(mechanism, told.message).into()),
                ILLEGAL_STATE => return Err(SaslError::NotAsked.into()),
                code => return Err(ConnectionError::Refused(Api::SaslAuthenticate, code)),
            }
            let (lifetime, said) = (told.lifetime_ms, told.said.to_vec());
            // Not on this thread, which fetches for others: it may take a second.
            let next = tokio::task::spawn_blocking(move || {
                let next = exchange.next(&said);
                (exchange, next)
            });
            let (stepped, next) = next.await.map_err(std::io::Error::other)?;
            exchange = stepped;
            match next? {
                Some(next) => message = next,
                None => {
                    let lifetime = u64::try_from(lifetime).ok().filter(|millis| *millis > 0);
                    return Ok(lifetime.map(Duration::from_millis));
                }
            }
        }
        Err(SaslError::Malformed("it has no end").into())
    }
}
