//! Asking a citetap on this machine that is not on plain TCP.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::net::UnixStream;

/// Over a Unix socket.
pub async fn ask(socket: &Path, path: &str) -> Result<StatusCode, String> {
    let stream = UnixStream::connect(socket).await.map_err(|error| format!("could not connect: {error}"))?;
    let broken = |error: hyper::Error| format!("the connection broke: {error}");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    tokio::spawn(connection);
    let request = Request::get(path).header(header::HOST, "localhost").body(Empty::<Bytes>::new());
    let request = request.map_err(|error| error.to_string())?;
    sender.send_request(request).await.map(|response| response.status()).map_err(broken)
}

/// For a question that tells nothing, to an address of our own configuration: whatever certificate is shown, which may be
/// an older one than the file has now.
pub fn any_certificate() -> ClientConfig {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Arc::new(Any(Arc::clone(&provider)));
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = match builder.with_safe_default_protocol_versions() {
        Ok(builder) => builder,
        // This provider has all that the defaults need; the other way is the process's own.
        Err(_) => ClientConfig::builder(),
    };
    builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
}

#[derive(Debug)]
struct Any(Arc<CryptoProvider>);

impl ServerCertVerifier for Any {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
