//! `citetap health`.

use citetap::replay::{Script, Scripted, Upstream};
use http::{HeaderValue, StatusCode, header};

use crate::process::{CommandOutput, Running, citetap, dead_port, run};

fn plain(args: &[&str]) -> CommandOutput {
    let dir = tempfile::tempdir().unwrap();
    run(citetap(dir.path(), args), "")
}

#[tokio::test]
async fn health_checks_a_running_citetap() {
    let dir = tempfile::tempdir().unwrap();
    let demo = Running::start(citetap(dir.path(), &["demo", "--listen", "127.0.0.1:0"])).await;
    let url = format!("http://{}", demo.addr);
    for args in [&["--url", &url][..], &["--ready", "--url", &url], &["--ready", "--url", &format!("{url}/")]] {
        let ran = plain(&[&["health"], args].concat());
        assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "", ""), "{args:?}");
    }
    // As in a container: no flags, the address comes from the environment.
    let mut command = citetap(dir.path(), &["health"]);
    command.env("CITETAP_LISTEN", format!("0.0.0.0:{}", demo.addr.port()));
    command.env("CITETAP_UPSTREAM", "http://127.0.0.1:1").env("CITETAP__AUTH", "none");
    assert_eq!(run(command, "").code, 0);

    let dead = format!("http://127.0.0.1:{}", dead_port());
    let ran = plain(&["health", "--url", &dead]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains(&dead) && ran.err.contains("could not connect"), "{}", ran.err);
    assert_eq!(plain(&["health", "--url", "not a url"]).code, 1);
    assert_eq!(plain(&["health", "--url", &url, "--timeout=-1"]).code, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn health_ignores_proxies_and_redirects() {
    let dir = tempfile::tempdir().unwrap();
    let up = Upstream::bind(vec![Scripted::new("/", Script::json("{}"))]).await.unwrap();
    let mut command = citetap(dir.path(), &["health", "--url", &up.url()]);
    command.envs(
        ["HTTP_PROXY", "http_proxy", "ALL_PROXY"].map(|name| (name, format!("http://127.0.0.1:{}", dead_port()))),
    );
    assert_eq!(run(command, "").code, 0);

    let elsewhere = HeaderValue::from_str(&up.url()).unwrap();
    let moved = Script::json("{}").status(StatusCode::FOUND).header(header::LOCATION, elsewhere);
    let moved = Upstream::bind(vec![Scripted::new("/", moved)]).await.unwrap();
    let ran = plain(&["health", "--url", &moved.url()]);
    assert!(ran.code == 1 && ran.err.contains("/healthz answered 302 Found"), "{ran:?}");
    assert_eq!(up.request_count(), 1, "only the first server got a request");
}

#[tokio::test(flavor = "multi_thread")]
async fn health_reports_a_timeout() {
    let hangs = Upstream::bind(vec![Scripted::new("/", Script::hang())]).await.unwrap();
    let ran = plain(&["health", "--url", &hangs.url(), "--timeout", "0.2"]);
    assert!(ran.code == 1 && ran.err.contains("/healthz did not answer within 0.2 s"), "{ran:?}");
}
