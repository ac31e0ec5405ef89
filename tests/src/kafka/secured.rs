//! A broker that asks who comes, and proves who it is.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::TestBroker;
use super::broker::free_port;

/// One of its listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "what they say")]
pub enum Door {
    /// TLS.
    Tls,
    /// TLS, for clients that have a certificate.
    Mutual,
    /// SASL by passwords, without TLS.
    Sasl,
    /// SASL by passwords, and TLS.
    SaslTls,
    /// The same; who authenticated is asked again after three seconds.
    Renewed,
    /// SASL by tokens.
    Token,
}

impl Door {
    const ALL: [Self; 6] = [
        Self::Tls,
        Self::Mutual,
        Self::Sasl,
        Self::SaslTls,
        Self::Renewed,
        Self::Token,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Tls => "TLS",
            Self::Mutual => "MUTUAL",
            Self::Sasl => "SASLPLAIN",
            Self::SaslTls => "SASLTLS",
            Self::Renewed => "RENEWED",
            Self::Token => "TOKEN",
        }
    }

    fn protocol(self) -> &'static str {
        match self {
            Self::Tls | Self::Mutual => "SSL",
            Self::Sasl | Self::Token => "SASL_PLAINTEXT",
            Self::SaslTls | Self::Renewed => "SASL_SSL",
        }
    }
}

/// A broker with a listener of each kind beside the plain one, certificates for `localhost`, and the users `alice` and `bob`.
pub struct SecuredBroker {
    /// For what is asked without all that.
    pub broker: TestBroker,
    ports: BTreeMap<Door, u16>,
}

/// Who may come by any door; by SCRAM `bob` too, with the same password at first.
const USER: &str = "alice";
const PASSWORD: &str = "open-sesame";

impl SecuredBroker {
    /// Starts it.
    ///
    /// # Errors
    /// As [`TestBroker::start`].
    pub fn start() -> Result<Self> {
        let mut broker = TestBroker::not_started()?;
        let mut ports = BTreeMap::new();
        for door in Door::ALL {
            ports.insert(door, free_port()?);
        }
        write_certificates(broker.dir())?;
        let more = broker.dir().join("more.properties");
        fs::write(&more, settings(broker.dir()))?;
        let doors = ports.iter();
        let doors = doors.map(|(door, port)| format!("{}={port}={}", door.name(), door.protocol()));
        let doors: Vec<String> = doors.collect();
        broker.more = [
            ("--secured", doors.join(",")),
            ("--more", more.to_string_lossy().into_owned()),
            ("--user", format!("{USER}:{PASSWORD}")),
            ("--user", format!("bob:{PASSWORD}")),
        ]
        .into_iter()
        .flat_map(|(option, value)| [option.to_owned(), value])
        .collect();
        broker.start_again()?;
        Ok(Self { broker, ports })
    }

    /// Gives `bob` another password; `None`: the first one.
    ///
    /// # Errors
    /// What the script says.
    pub fn set_password(&self, password: Option<&str>) -> Result<()> {
        let password = password.unwrap_or(PASSWORD);
        self.broker.run(&["password", "bob", password])
    }

    /// `localhost:port` of a listener.
    #[must_use]
    pub fn address(&self, door: Door) -> String {
        format!("localhost:{}", self.ports[&door])
    }

    /// A file beside its own: `ca.pem`, `client.pem`, `client.key`, `other.pem` and `twin.pem` (other authorities,
    /// the second of the same name).
    #[must_use]
    pub fn file(&self, name: &str) -> String {
        self.broker.dir().join(name).to_string_lossy().into_owned()
    }

    /// What a client says at a listener: `mechanism` for SASL.
    #[must_use]
    pub fn properties(&self, door: Door, mechanism: &str) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        let mut set = |name: &str, value: &str| _ = all.insert(name.to_owned(), value.to_owned());
        set("security.protocol", &door.protocol().to_lowercase());
        if door.protocol().ends_with("SSL") {
            set("ssl.ca.location", &self.file("ca.pem"));
        }
        match door {
            Door::Tls => {}
            Door::Mutual => {
                set("ssl.certificate.location", &self.file("client.pem"));
                set("ssl.key.location", &self.file("client.key"));
            }
            Door::Sasl | Door::SaslTls | Door::Renewed => {
                set("sasl.mechanism", mechanism);
                set("sasl.username", USER);
                set("sasl.password", PASSWORD);
            }
            Door::Token => set("sasl.mechanism", "OAUTHBEARER"),
        }
        all
    }
}

fn settings(dir: &Path) -> String {
    let path = |name: &str| dir.join(name).display().to_string();
    let mut text = format!(
        "ssl.keystore.type=PEM\nssl.keystore.location={}\n\
         ssl.truststore.type=PEM\nssl.truststore.location={}\n",
        path("broker.pem"),
        path("ca.pem")
    );
    let security = "org.apache.kafka.common.security";
    for door in Door::ALL {
        let of = format!("listener.name.{}", door.name().to_lowercase());
        let mut set = |name: &str, value: &str| text.push_str(&format!("{of}.{name}={value}\n"));
        match door {
            Door::Tls => {}
            Door::Mutual => set("ssl.client.auth", "required"),
            Door::Sasl | Door::SaslTls | Door::Renewed => {
                set(
                    "sasl.enabled.mechanisms",
                    "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
                );
                let user = format!(
                    "{security}.plain.PlainLoginModule required user_{USER}=\"{PASSWORD}\";"
                );
                set("plain.sasl.jaas.config", &user);
                let scram = format!("{security}.scram.ScramLoginModule required;");
                set("scram-sha-256.sasl.jaas.config", &scram);
                set("scram-sha-512.sasl.jaas.config", &scram);
                if door == Door::Renewed {
                    set("scram-sha-512.connections.max.reauth.ms", "3000");
                }
            }
            Door::Token => {
                set("sasl.enabled.mechanisms", "OAUTHBEARER");
                let login = format!(
                    "{security}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=\"broker\";"
                );
                set("oauthbearer.sasl.jaas.config", &login);
                // Or as long as the token counts.
                set("oauthbearer.connections.max.reauth.ms", "3600000");
            }
        }
    }
    text
}

fn write_certificates(dir: &Path) -> Result<()> {
    let write = |name: &str, text: String| fs::write(dir.join(name), text);
    let authority = authority("ours")?;
    write("ca.pem", authority.pem())?;
    write("other.pem", self::authority("another")?.pem())?;
    write("twin.pem", self::authority("ours")?.pem())?;
    for (name, of, usage) in [
        ("broker", "localhost", ExtendedKeyUsagePurpose::ServerAuth),
        ("client", "alice", ExtendedKeyUsagePurpose::ClientAuth),
    ] {
        let mut params = CertificateParams::new(vec![of.to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, of);
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &authority)?;
        write(&format!("{name}.key"), key.serialize_pem())?;
        let key = if name == "broker" {
            key.serialize_pem()
        } else {
            String::new()
        };
        write(
            &format!("{name}.pem"),
            format!("{key}{}", certificate.pem()),
        )?;
    }
    Ok(())
}

fn authority(name: &str) -> Result<CertifiedIssuer<'static, KeyPair>> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

/// Gives tokens that nobody signs to the client `reader` with the secret `hush`; each counts for ten seconds.
pub struct TokenEndpoint {
    /// Where it is.
    pub url: String,
    given: Arc<AtomicUsize>,
}

impl TokenEndpoint {
    /// Starts it; it ends with the process.
    ///
    /// # Errors
    /// The system's.
    pub fn start() -> Result<Self> {
        Self::start_with("http://127.0.0.1", answer)
    }

    /// The same with TLS, by the broker's own certificate.
    ///
    /// # Errors
    /// The system's.
    pub fn start_secured(broker: &SecuredBroker) -> Result<Self> {
        let read = |name| fs::read(broker.file(name));
        let certificates = CertificateDer::pem_slice_iter(&read("broker.pem")?).collect();
        let certificates: Result<Vec<_>, _> = certificates;
        let key = PrivateKeyDer::from_pem_slice(&read("broker.key")?)?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(certificates?, key)?;
        let config = Arc::new(config);
        Self::start_with("https://localhost", move |stream, given| {
            let connection = ServerConnection::new(Arc::clone(&config))?;
            answer(StreamOwned::new(connection, stream), given)
        })
    }

    fn start_with(
        host: &str,
        answer: impl Fn(TcpStream, &AtomicUsize) -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let url = format!("{host}:{}/token", listener.local_addr()?.port());
        let given = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&given);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // Who hangs up is none of its business.
                let _ = answer(stream, &counted);
            }
        });
        Ok(Self { url, given })
    }

    /// How many tokens it gave.
    #[must_use]
    pub fn given(&self) -> usize {
        self.given.load(Ordering::Relaxed)
    }

    /// What a client says to get one.
    #[must_use]
    pub fn properties(&self, secret: &str) -> [(String, String); 4] {
        [
            ("method", "oidc"),
            ("client.id", "reader"),
            ("client.secret", secret),
            ("token.endpoint.url", &self.url),
        ]
        .map(|(name, value)| (format!("sasl.oauthbearer.{name}"), value.to_owned()))
    }
}

fn answer(stream: impl Read + Write, given: &AtomicUsize) -> Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length, mut is_known) = (String::new(), 0, false);
    while reader.read_line(&mut line)? > 2 {
        let (name, value) = line.split_once(':').unwrap_or_default();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse()?,
            // reader:hush
            "authorization" => is_known = value.trim() == "Basic cmVhZGVyOmh1c2g=",
            _ => {}
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let (status, answer) = match is_known && body.starts_with(b"grant_type=client_credentials") {
        true => {
            given.fetch_add(1, Ordering::Relaxed);
            ("200 OK", token())
        }
        false => (
            "401 Unauthorized",
            r#"{"error":"invalid_client"}"#.to_owned(),
        ),
    };
    let length = answer.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    let stream = reader.get_mut();
    stream.write_all(format!("{head}{answer}").as_bytes())?;
    stream.flush()?;
    Ok(())
}

fn token() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
    let now = now.unwrap_or_default().as_secs();
    let claims = format!(r#"{{"sub":"alice","iat":{now},"exp":{}}}"#, now + 10);
    let [head, body] = [r#"{"alg":"none"}"#, &claims].map(base64_url);
    format!(r#"{{"access_token":"{head}.{body}.","token_type":"Bearer","expires_in":10}}"#)
}

fn base64_url(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut encoded = String::new();
    for part in text.as_bytes().chunks(3) {
        let byte = |at: usize| u32::from(part.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..=part.len() {
            let index = bits >> (18 - 6 * digit) & 0x3f;
            encoded.push(char::from(DIGITS[index as usize]));
        }
    }
    encoded
}
