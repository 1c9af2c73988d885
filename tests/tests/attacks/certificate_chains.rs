//! Servers that send many certificates: which of them a client looks at, and in which order, is up to the client, and a library
//! that tries all ways through them can be kept busy for seconds.

use std::net::SocketAddr;
use std::sync::Arc;

use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::process::cpu_ticks;
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DistinguishedName, DnType, IsCa,
    KeyPair, PKCS_ED25519,
};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

/// Calls to each server.
const CALLS: usize = 40;

/// As many certificates as a server can send at all.
const MANY: usize = 180;

/// Those of them that have the name of their issuer.
const ALIKE: usize = 9;

/// The times that calls to a server with many certificates may cost of those to one with its own alone.
const MOST: u64 = 5;

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// A server's certificate with its key, and `count` others of the same issuer. The first few have the issuer's name, and all
/// but the first another key than the issuer.
fn certificates(count: usize) -> (Vec<CertificateDer<'static>>, PrivatePkcs8KeyDer<'static>) {
    let mut authority = named("X");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = || KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let issuer = CertifiedIssuer::self_signed(authority, key()).unwrap();
    let own = KeyPair::generate().unwrap();
    let mut chain =
        vec![CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&own, &issuer).unwrap()];
    for number in 0..count {
        let mut params = named(if number < ALIKE { "X" } else { "Y" });
        // Certificates of authorities, as short as they can be.
        params.custom_extensions =
            vec![CustomExtension::from_oid_content(&[2, 5, 29, 19], vec![0x30, 3, 1, 1, 0xff])];
        chain.push(params.signed_by(&key(), &issuer).unwrap());
    }
    let key = PrivatePkcs8KeyDer::from(own.serialize_der());
    (chain.into_iter().map(|certificate| certificate.der().clone()).collect(), key)
}

/// A server of the attacker's that sends so many certificates beside its own.
async fn server(count: usize) -> SocketAddr {
    let (chain, key) = certificates(count);
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key.into())
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(acceptor.accept(stream));
        }
    });
    address
}

/// With one call, or one webhook, to a server that sends 55 KB of certificates of its own making, a gateway's thread was busy
/// for three seconds, and all other calls of the thread waited.
#[test]
fn a_server_with_many_certificates_costs_little_more_than_one_with_its_own() {
    run(async {
        let attacker = Merchant::new().await;
        let gateway = SideGateway::start(attacker.instance, &["--allow-address=127.0.0.0/8"]).await;
        let cost = async |certificates: usize| {
            let url = format!("https://{}/", server(certificates).await);
            let before = cpu_ticks(gateway.pid());
            for _ in 0..CALLS {
                let call = forward("POST", &url).bearer(&attacker.secret_key).header("x-api-key", "x");
                call.send(gateway.address).await.unwrap().refused(502, "provider_unreachable");
            }
            cpu_ticks(gateway.pid()) - before
        };
        cost(0).await;
        let (alone, many) = (cost(0).await, cost(MANY).await);
        assert!(many <= MOST * alone.max(1), "{many} ticks of the processor beside {alone}");
    });
}
