use super::{super::*, vars};

#[test]
fn sidecar_example_loads() {
    let text = include_str!("../../../config/examples/sidecar.env");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let loaded = vars(&lines.map(|line| line.split_once('=').unwrap()).collect::<Vec<_>>()).unwrap();
    assert_eq!(loaded.config.routes[0].provider, crate::provider::doubao::PROVIDER);
    assert_eq!(loaded.config.store, StoreUrl::Memory);
}

#[test]
fn doubao_and_tencent_example_loads() {
    let text = include_str!("../../../config/examples/doubao-and-tencent.toml");
    let config = from_toml(text, "/".as_ref()).unwrap().config;
    assert_eq!(config.routes.len(), 2);
    assert!(
        config
            .routes
            .iter()
            .any(|route| route.provider == crate::provider::tencent::PROVIDER && route.link_base.is_some())
    );
}

/// The example takes the API key from the environment.
#[test]
fn supplement_example_loads() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("citetap.toml"), include_str!("../../../config/examples/supplement.toml")).unwrap();
    let config = load(&Flags::default(), [("TAVILY_API_KEY", "test-key")], dir.path()).unwrap().config;
    let whens: Vec<_> = config.routes.iter().map(|route| route.supplement.when).collect();
    assert_eq!(whens, [Supplement::Always, Supplement::WhenEmpty]);
    assert_eq!(config.routes[0].supplement.domains.len(), 3);
}

#[test]
fn openai_clients_example_loads() {
    let text = include_str!("../../../config/examples/openai-clients.toml");
    let routes = from_toml(text, "/".as_ref()).unwrap().config.routes;
    let models: Vec<String> =
        routes.into_iter().filter_map(|route| route.mapping).flat_map(|mapping| mapping.models).collect();
    assert_eq!(models, ["kb", "lexiang", "doubao-search"]);
}

#[test]
fn tenants_example_loads() {
    let config = from_toml(include_str!("../../../config/examples/tenants.toml"), "/".as_ref()).unwrap().config;
    assert_eq!((config.auth, config.tenants.len()), (Auth::Keys, 2));
}
