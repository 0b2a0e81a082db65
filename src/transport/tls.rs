//! The server's certificate and key. They can be reloaded while connections are open; open connections keep the old ones.

mod expiry;

use std::{
    fmt, fs,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use jiff::Timestamp;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use crate::config::TlsFiles;

/// Bytes of the largest file that is read. Certificate chains are far smaller; this guards against a wrong path.
const MAX_FILE: u64 = 1024 * 1024;
/// Days before its expiry from which on a certificate causes a warning.
pub const SOON_DAYS: i64 = 14;

/// ALPN protocols, preferred first.
pub(super) const PROTOCOLS: [&[u8]; 2] = [H2, b"http/1.1"];
pub const H2: &[u8] = b"h2";

/// The current TLS configuration.
pub struct Tls {
    current: RwLock<Arc<ServerConfig>>,
}

/// The validity of a certificate that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// End of the validity; `None` if it cannot be parsed.
    pub until: Option<Timestamp>,
}

/// Why files are not a certificate and its key. The text contains nothing of the files.
#[derive(Debug)]
pub struct BadFiles {
    file: PathBuf,
    why: String,
}

impl fmt::Display for BadFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.why)
    }
}

impl Tls {
    pub fn load(files: &TlsFiles) -> Result<(Self, Validity), BadFiles> {
        let (config, validity) = read(files)?;
        Ok((Self { current: RwLock::new(config) }, validity))
    }

    /// Reads the files again for new connections. On an error the current configuration stays.
    pub fn reload(&self, files: &TlsFiles) -> Result<Validity, BadFiles> {
        let (config, validity) = read(files)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(validity)
    }

    pub fn now(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Validity {
    /// A warning for the operator if the certificate has expired or expires within [`SOON_DAYS`].
    pub fn trouble(&self, now: Timestamp) -> Option<String> {
        let until = self.until?;
        let days = until.duration_since(now).as_hours() / 24;
        if until <= now {
            Some(format!("the certificate has expired: it was valid until {until}"))
        } else {
            (days < SOON_DAYS).then(|| format!("the certificate expires in {days} days: it is valid until {until}"))
        }
    }

    pub fn is_over(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

fn read(files: &TlsFiles) -> Result<(Arc<ServerConfig>, Validity), BadFiles> {
    let bad = |file: &Path, why: String| BadFiles { file: file.to_owned(), why };
    let text = |file: &Path| contents(file).map_err(|error| bad(file, format!("cannot be read: {error}")));
    let (cert, key) = (text(&files.cert)?, text(&files.key)?);
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&cert)
        .collect::<Result<_, _>>()
        .map_err(|error| bad(&files.cert, format!("is not PEM: {error}")))?;
    let Some(leaf) = chain.first() else {
        return Err(bad(&files.cert, "has no certificate: expected PEM, -----BEGIN CERTIFICATE-----".to_owned()));
    };
    let until = expiry::not_after(leaf);
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|_| {
        bad(&files.key, "has no private key: expected PEM, as PKCS#8, PKCS#1 or SEC1 and not encrypted".to_owned())
    })?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(&files.cert, error.to_string()))?;
    let built = builder.with_no_client_auth().with_single_cert(chain, key);
    let mut config = built.map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            bad(&files.key, format!("is not the key of the certificate in {}", files.cert.display()))
        }
        other => bad(&files.cert, other.to_string()),
    })?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    Ok((Arc::new(config), Validity { until }))
}

fn contents(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(file)?.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(io::Error::other(format!("it is larger than {MAX_FILE} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(dir: &Path, name: &str) -> TlsFiles {
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let files =
            TlsFiles { cert: dir.join(format!("{name}.crt")), key: dir.join(format!("{name}.key")), admin: true };
        fs::write(&files.cert, cert.pem()).unwrap();
        fs::write(&files.key, signing_key.serialize_pem()).unwrap();
        files
    }

    #[test]
    fn reload_of_bad_files_names_them_and_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (create(dir.path(), "one"), create(dir.path(), "other"));
        let (tls, validity) = Tls::load(&one).unwrap();
        assert!(validity.trouble(Timestamp::now()).is_none());
        let before = tls.now();
        let mixed = TlsFiles { key: other.key.clone(), ..one.clone() };
        let missing = TlsFiles { cert: dir.path().join("none.crt"), ..one.clone() };
        let swapped = TlsFiles { cert: one.key.clone(), ..one.clone() };
        let keyless = TlsFiles { key: one.cert.clone(), ..one.clone() };
        for (files, why) in [
            (mixed, "other.key: is not the key of the certificate in"),
            (missing, "none.crt: cannot be read: No such file"),
            (swapped, "one.key: has no certificate"),
            (keyless, "one.crt: has no private key"),
        ] {
            let error = tls.reload(&files).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert!(Arc::ptr_eq(&before, &tls.now()));
        }
        tls.reload(&other).unwrap();
        assert!(!Arc::ptr_eq(&before, &tls.now()));
    }

    #[test]
    fn certificate_that_expires_soon_causes_a_warning() {
        let until: Timestamp = "2026-03-01T00:00:00Z".parse().unwrap();
        let validity = Validity { until: Some(until) };
        let warning = |now: &str| validity.trouble(now.parse().unwrap()).unwrap_or_default();
        assert_eq!(warning("2026-02-15T00:00:00Z"), "", "14 days");
        assert!(warning("2026-02-15T00:00:01Z").contains("expires in 13 days"));
        assert!(warning("2026-02-28T23:59:59Z").contains("expires in 0 days"));
        assert!(warning("2026-03-01T00:00:00Z").contains("has expired"));
        assert!(validity.is_over(until) && !validity.is_over("2026-02-28T23:59:59Z".parse().unwrap()));
        assert!(!Validity { until: None }.is_over(until));
    }
}
