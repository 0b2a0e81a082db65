use super::{super::*, errors_of, only, shown, vars};
use crate::mapping::UpstreamFormat;

fn route(name: &str, openai: &str) -> String {
    format!(
        "[[routes]]\nname = {name:?}\nprefix = \"/{name}\"\nupstream = \"https://a.example\"\n[routes.openai]\n{openai}\n"
    )
}

fn load(openai: &str) -> Result<Loaded, ConfigErrors> {
    from_toml(&route("a", openai), "/".as_ref())
}

#[track_caller]
fn mapping(openai: &str) -> Mapping {
    load(openai).unwrap_or_else(|errors| panic!("{errors}")).config.routes[0].mapping.clone().unwrap()
}

#[test]
fn each_request_format_has_a_default_path() {
    let plain = mapping("models = [\"a\", \"豆包/pro:1\"]");
    assert!(matches!(plain.to, UpstreamFormat::OpenAi));
    assert_eq!((plain.path.as_str(), plain.upstream_model), ("/v1/chat/completions", None));
    assert_eq!(plain.models, ["a", "豆包/pro:1"]);
    let lexiang = mapping("models = [\"a\"]\nrequest = \"lexiang\"");
    assert!(matches!(lexiang.to, UpstreamFormat::Lexiang));
    assert_eq!(lexiang.path, "/cgi-bin/v1/ai/qa");
    let named = mapping("models = [\"a\"]\npath = \"/api/v3/bots/chat/completions?v=1\"\nupstream_model = \"bot-1\"");
    assert_eq!(
        (named.path.as_str(), named.upstream_model.as_deref()),
        ("/api/v3/bots/chat/completions?v=1", Some("bot-1"))
    );
    let template =
        mapping("models = [\"a\"]\nrequest = \"template\"\npath = \"/x\"\ntemplate = '{\"q\":\"{{query}}\"}'");
    assert!(matches!(template.to, UpstreamFormat::Template(_)));
    let none = from_toml(&route("a", "").replace("[routes.openai]", ""), "/".as_ref()).unwrap();
    assert!(none.config.routes[0].mapping.is_none());
}

#[test]
fn lexiang_request_implies_provider_tencent() {
    let provider = |route: &str| from_toml(route, "/".as_ref()).unwrap().config.routes[0].provider;
    let lexiang = route("a", "models = [\"m\"]\nrequest = \"lexiang\"");
    assert_eq!(provider(&lexiang), crate::provider::tencent::PROVIDER);
    assert_eq!(
        provider(&lexiang.replace("[routes.openai]", "provider = \"doubao\"\n[routes.openai]")),
        crate::provider::doubao::PROVIDER
    );
    assert_eq!(provider(&route("a", "models = [\"m\"]")), Provider::AUTO);
}

#[test]
fn errors_have_a_location() {
    for (openai, error) in [
        ("request = \"lexiang\"", "6:11: routes.openai: without models = [\"…\"] nobody can ask for it"),
        ("models = []", "6:10: routes.openai.models = an array: expected at least one model name"),
        (
            "models = [\"a b\"]",
            "6:10: routes.openai.models = an array: \"a b\": expected a model name: 1 to 128 bytes without spaces",
        ),
        (
            "models = \"a\"",
            "6:10: routes.openai.models = \"a\": expected an array: expected a model name: 1 to 128 bytes without spaces",
        ),
        ("models = [\"a\", \"b\", \"a\"]", "6:10: routes.openai.models = an array: \"a\" is named twice"),
        (
            "models = [\"a\"]\nrequest = \"lexang\"",
            "7:11: routes.openai.request = \"lexang\": expected \"openai\", \"lexiang\" or \"template\"; did you mean \"lexiang\"?",
        ),
        ("models = [\"a\"]\nmodel = 1", "7:1: unknown key \"model\" in [routes.openai]; did you mean \"models\"?"),
        ("models = [\"a\"]\npath = \"v1\"", "7:8: routes.openai.path = \"v1\": must begin with \"/\""),
        (
            "models = [\"a\"]\npath = \"/a b\"",
            "7:8: routes.openai.path = \"/a b\": expected a path of visible ASCII characters, others percent-encoded",
        ),
        (
            "models = [\"a\"]\npath = \"/a#b\"",
            "7:8: routes.openai.path = \"/a#b\": expected a path of visible ASCII characters, others percent-encoded",
        ),
        (
            "models = [\"a\"]\npath = \"/a/%2E./b\"",
            "7:8: routes.openai.path = \"/a/%2E./b\": must not contain \".\" or \"..\" segments",
        ),
        (
            "models = [\"a\"]\nrequest = \"lexiang\"\nupstream_model = \"x\"",
            "8:18: routes.openai.upstream_model: Lexiang is not told of models; remove it",
        ),
        (
            "models = [\"a\"]\ntemplate = '[\"{{query}}\"]'",
            "7:12: routes.openai.template: has no effect unless request = \"template\"",
        ),
    ] {
        assert_eq!(only(load(openai)), format!("citetap.toml:{error}"), "{openai}");
    }
    assert_eq!(
        errors_of(load("models = [\"a\"]\nrequest = \"template\"")),
        [
            "citetap.toml:1:1: routes.openai.template: request = \"template\" needs a template, a JSON document with placeholders",
            "citetap.toml:1:1: routes.openai.path: request = \"template\" needs a path, such as \"/v1/chat\"",
        ]
    );
}

#[test]
fn model_names_and_lists_are_capped() {
    let with = |count: usize, len: usize| {
        let names: Vec<String> = (0..count).map(|n| format!("{:?}", format!("{n:x<len$}"))).collect();
        load(&format!("models = [{}]", names.join(",")))
    };
    assert!(with(256, 9).is_ok() && with(1, 128).is_ok());
    assert!(only(with(257, 9)).contains("expected 256 names at most"));
    assert!(only(with(1, 129)).contains("1 to 128 bytes"));
}

#[test]
fn template_errors_do_not_repeat_the_template() {
    for (template, why) in [
        ("{\"key\":\"app-key-7\",\"q\":\"{{quary}}\"}", "{{quary}} is not a placeholder; did you mean {{query}}?"),
        (
            "[\"app-key-7\",\"{{x}}{{query}}\"]",
            "{{x}} is not a placeholder; there are {{messages}}, {{query}}, {{system}}, {{model}}, {{user}}, {{session}}, {{stream}}, {{request}}",
        ),
        ("{\"q\":\"{{query}}\" \"app-key-7\"", "is not JSON: expected `,` or `}` at line 1 column 18"),
        ("[\"app-key-7 {{query}\"]", "has {{ without }}"),
        ("{\"{{query}}\":\"app-key-7\"}", "has a placeholder in the name of a member; they stand in values"),
        ("[\"app-key-7 {{messages}}\"]", "{{messages}} is not a text: it stands alone, as \"{{messages}}\""),
        ("[\"app-key-7\"]", "has neither {{messages}} nor {{query}}: nothing would be asked"),
    ] {
        let error =
            only(load(&format!("models = [\"a\"]\nrequest = \"template\"\npath = \"/x\"\ntemplate = '{template}'")));
        assert_eq!(error, format!("citetap.toml:9:12: routes.openai.template: {why}"));
    }
}

#[test]
fn model_of_two_routes_is_refused() {
    let text = route("a", "models = [\"m\", \"n\"]") + &route("b", "models = [\"o\", \"m\"]");
    assert_eq!(
        only(from_toml(&text, "/".as_ref())),
        "citetap.toml:12:10: routes.openai.models = \"m\": another route has this model (citetap.toml:6:10)"
    );
}

#[test]
fn templates_and_path_queries_are_not_listed() {
    let text = "models = [\"m\"]\nrequest = \"template\"\npath = \"/x?key=app-key-7\"\ntemplate = '[\"{{query}}\",\"app-key-7\"]'";
    let loaded = load(text).unwrap();
    assert_eq!(shown(&loaded, "routes.a.openai.path").0, "/x?•••");
    assert_eq!(shown(&loaded, "routes.a.openai.template").0, "•••");
    assert_eq!(shown(&loaded, "routes.a.openai.models").0, "[m]");
    assert!(!format!("{:?}", loaded.effective).contains("app-key-7"));
}

#[test]
fn sidecar_route_can_have_models() {
    let loaded = vars(&[
        ("CITETAP_UPSTREAM", "https://lxapi.example.com"),
        ("CITETAP_MODELS", "lexiang, kb"),
        ("CITETAP_REQUEST", "lexiang"),
    ]);
    let route = loaded.unwrap().config.routes[0].clone();
    assert_eq!(
        (route.provider, route.mapping.unwrap().models),
        (crate::provider::tencent::PROVIDER, vec!["lexiang".to_owned(), "kb".to_owned()])
    );
}
