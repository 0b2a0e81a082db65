//! Lua scripts; each runs as one transaction.

use std::sync::LazyLock;

use redis::Script;

macro_rules! script {
    ($name:ident, $($file:literal),+) => {
        pub(super) static $name: LazyLock<Script> = LazyLock::new(|| Script::new(concat!($(include_str!($file)),+)));
    };
}

script!(PUT, "common.lua", "put.lua");
script!(DELETE, "common.lua", "delete.lua");
script!(SWEEP, "common.lua", "sweep.lua");
script!(PAGE, "page.lua");
script!(NEWEST, "newest.lua");
script!(ADVANCE, "advance.lua");
script!(REGISTER_TENANT, "common.lua", "register_tenant.lua");
