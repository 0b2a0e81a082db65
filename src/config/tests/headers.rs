use super::{super::*, ROUTE, only};

fn load_with(rest: &str) -> Result<Loaded, ConfigErrors> {
    from_toml(&format!("{ROUTE}{rest}\n"), "/".as_ref())
}

#[test]
fn header_rules_load_and_values_are_not_printed() {
    let text = "emit_empty = true\nrequest_headers.remove = [\"Cookie\"]\nrequest_headers.set = { X-Team = \"a\" }\n[routes.response_headers]\nset = { b = \"2\", a = \"1\" }";
    let loaded = load_with(text).unwrap();
    let route_a = &loaded.config.routes[0];
    assert!(route_a.emit_empty);
    assert_eq!(route_a.request_headers.remove, ["cookie"]);
    let (name, value) = &route_a.request_headers.set[0];
    assert_eq!((name.as_str(), value.to_str().unwrap(), value.is_sensitive()), ("x-team", "a", true));
    assert_eq!(route_a.response_headers.set.len(), 2);

    let with = |rest: &str| only(load_with(rest));
    assert_eq!(
        with("request_headers.remove = [\"a b\"]"),
        "citetap.toml:5:26: routes.request_headers.remove = an array: \"a b\": expected header names"
    );
    for (rest, error) in [
        (
            "request_headers.set = { \"a b\" = \"hunter2\" }",
            "citetap.toml:5:33: routes.request_headers.set.a b: is not a header name",
        ),
        (
            "request_headers.set = { a = \"hunter2\\n\" }",
            "citetap.toml:5:29: routes.request_headers.set.a: expected visible ASCII characters",
        ),
        ("request_headers.set = { a = 22 }", "citetap.toml:5:29: routes.request_headers.set.a: expected a text"),
        (
            "request_headers.set = { A = \"1\", a = \"2\" }",
            "citetap.toml:5:38: routes.request_headers.set.a: the same header is set twice",
        ),
        (
            "request_headers.set = \"hunter2\"",
            "citetap.toml:5:23: routes.request_headers.set: expected a table such as { x-team = \"search\" }",
        ),
        (
            "response_headers.set = { Content-Length = \"0\" }",
            "citetap.toml:5:24: routes.response_headers.set: content-length belongs to the connection and cannot have a rule",
        ),
        (
            "request_headers.remove = [\"te\"]",
            "citetap.toml:5:26: routes.request_headers.remove: te belongs to the connection and cannot have a rule",
        ),
    ] {
        assert_eq!(with(rest), error);
    }
}
