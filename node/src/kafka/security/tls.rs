//! Who is trusted, and who we are: certificates by librdkafka's properties, for rustls.
//!
//! Files are read for each connection: what was renewed on the disk counts from the next one on.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use super::Secret;

/// PEM, or where it lies.
#[derive(Clone, Debug)]
pub(super) enum Pem {
    /// A file, or a directory of them; with the property that names it.
    At(&'static str, PathBuf),
    Text(&'static str, Secret),
}

impl Pem {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::At(name, _) | Self::Text(name, _) => name,
        }
    }

    fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::At(_, path) => self.read_at(path),
            Self::Text(_, text) => Ok(text.reveal().as_bytes().to_vec()),
        }
    }

    fn read_at(&self, path: &Path) -> Result<Vec<u8>, String> {
        let refused = |error: std::io::Error| {
            let (name, path) = (self.name(), path.display());
            format!("{name}: {path} cannot be read: {error}")
        };
        if !path.is_dir() {
            return std::fs::read(path).map_err(refused);
        }
        let mut all = Vec::new();
        for entry in std::fs::read_dir(path).map_err(refused)? {
            let path = entry.map_err(refused)?.path();
            if path.is_file() {
                all.extend(std::fs::read(path).map_err(refused)?);
                all.push(b'\n');
            }
        }
        Ok(all)
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let bytes = self.read()?;
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
        match found {
            Ok(found) if !found.is_empty() => Ok(found),
            Ok(_) => Err(format!("{}: holds no certificate in PEM", self.name())),
            Err(error) => Err(format!("{}: is not PEM: {error}", self.name())),
        }
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, String> {
        let bytes = self.read()?;
        let text = String::from_utf8_lossy(&bytes);
        if text.contains("ENCRYPTED") {
            return Err(format!(
                "{}: the key is encrypted; give it decrypted (openssl pkey) where only Unisono reads it, or set \
                 reader = \"librdkafka\" with ssl.key.password",
                self.name()
            ));
        }
        PrivateKeyDer::from_pem_slice(&bytes)
            .map_err(|_| format!("{}: holds no private key in PEM", self.name()))
    }
}

/// What is asked of the other end's certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Check {
    #[default]
    Full,
    /// By somebody who is trusted, for whatever name.
    AnyName,
    Nothing,
}

/// One end's view of TLS.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// `None`: whom the system trusts.
    pub(super) authorities: Option<Pem>,
    pub(super) certificate: Option<Pem>,
    pub(super) key: Option<Pem>,
    pub(super) check: Check,
}

impl Tls {
    /// Reads what it takes.
    ///
    /// # Errors
    /// Which property does not fit, and why.
    pub fn config(&self) -> Result<Arc<ClientConfig>, String> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| error.to_string())?;
        let verified = match self.check {
            Check::Full => builder.with_root_certificates(self.roots()?),
            Check::AnyName => {
                let roots = Arc::new(self.roots()?);
                let chain =
                    WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
                let chain = chain.build().map_err(|error| error.to_string())?;
                let lenient = Arc::new(Lenient::new(Some(chain), provider));
                builder
                    .dangerous()
                    .with_custom_certificate_verifier(lenient)
            }
            Check::Nothing => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Lenient::new(None, provider))),
        };
        let config = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => verified
                .with_client_auth_cert(certificate.certificates()?, key.key()?)
                .map_err(|error| {
                    let (certificate, key) = (certificate.name(), key.name());
                    format!("{certificate} and {key} cannot be used: {error}")
                })?,
            _ => verified.with_no_client_auth(),
        };
        Ok(Arc::new(config))
    }

    fn roots(&self) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        let Some(authorities) = &self.authorities else {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            return match roots.is_empty() {
                true => Err(
                    "the system trusts no authority (Debian: package ca-certificates); install them, or give ssl.ca.location"
                        .to_owned(),
                ),
                false => Ok(roots),
            };
        };
        let found = authorities.certificates()?;
        let (added, _) = roots.add_parsable_certificates(found);
        match added {
            0 => Err(format!(
                "{}: holds no certificate that can be used",
                authorities.name()
            )),
            _ => Ok(roots),
        }
    }

    pub fn has_certificate(&self) -> bool {
        self.certificate.is_some()
    }
}

/// Asks less than is usual, because the user said so. Who is there must hold the certificate's key all the same.
#[derive(Debug)]
struct Lenient {
    /// `None`: nobody is asked for.
    chain: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl Lenient {
    fn new(chain: Option<Arc<WebPkiServerVerifier>>, provider: Arc<CryptoProvider>) -> Self {
        Self { chain, provider }
    }
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else {
            return Ok(ServerCertVerified::assertion());
        };
        // The name is looked at last.
        match chain.verify_server_cert(end_entity, intermediates, name, stapled, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
