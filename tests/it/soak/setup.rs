//! Upstream and configuration of the soak test: every capture in several chunkings, and every fault.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use citetap::{
    pipeline::End,
    replay::{Capture, Chunking, Format, Pace, Script, Scripted, Step},
};
use http::{HeaderValue, StatusCode, header};

use crate::{
    api::tenants::keys,
    golden::{captures, end_of},
    net::{route, tencent},
    process::dead_port,
    rng::Rng,
    support::fixtures,
};

/// Frames beyond this are relayed without being parsed.
const FRAME_CAP: &str = "64KiB";
const BEYOND_IT: usize = 200 << 10;
const BULK: u64 = 3 << 20;
const FOR_EVER: Duration = Duration::from_secs(3600);

/// How a response ends if the client stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Clean,
    /// Never a complete end.
    Abort,
}

/// A path and the expected response.
#[derive(Debug, Clone)]
pub struct Item {
    pub path: String,
    pub status: u16,
    pub ending: Ending,
    /// The upstream's bytes; if ids are replaced, only their number is known.
    pub sent: Sent,
    /// Every response has its own ids.
    pub has_fresh_ids: bool,
    /// Other profiles may be requested, and their clients can read the response.
    pub is_transcodable: bool,
}

#[derive(Debug, Clone)]
pub enum Sent {
    These(Bytes),
    SoMany(usize),
    /// The status of citetap's own response.
    Nothing,
}

#[derive(Default)]
pub struct Setup {
    pub scripts: Vec<Scripted>,
    pub items: Vec<Item>,
}

impl Setup {
    pub fn new(rng: &mut Rng) -> Self {
        let mut setup = Self::default();
        for (_, path) in captures() {
            setup.capture(&path, rng);
        }
        for path in wholes() {
            let bytes = Bytes::from(fs::read(&path).unwrap());
            let at = format!("/{}/whole/{}", folder(&path), stem(&path));
            setup.add(&at, Script::json(bytes.clone()), Ending::Clean, Sent::These(bytes));
        }
        setup.faults(rng);
        setup
    }

    fn add(&mut self, path: &str, script: Script, ending: Ending, sent: Sent) -> &mut Item {
        self.scripts.push(Scripted::new(path, script));
        self.items.push(Item {
            path: path.to_owned(),
            status: 200,
            ending,
            sent,
            has_fresh_ids: false,
            is_transcodable: false,
        });
        self.items.last_mut().unwrap()
    }

    fn capture(&mut self, path: &Path, rng: &mut Rng) {
        let sse = Bytes::from(fs::read(path).unwrap());
        let capture = Capture { sse: sse.clone(), format: Format::Sse, skipped: 0 };
        let at = format!("/{}/{}", folder(path), stem(path));
        let cut = end_of(path) == End::Cut;
        let ending = if cut { Ending::Abort } else { Ending::Clean };
        let len = sse.len();
        // Not every capture has a replaceable id.
        let ids = ["\"message_id", "\"completion_id", "\"chat.completion"];
        let has_ids = !path.to_string_lossy().contains("samantha")
            && ids.iter().any(|key| memchr::memmem::find(&sse, key.as_bytes()).is_some());
        let mut play = |pace: Pace| {
            let script = Script::from_capture(&capture, pace.chunking(chunking(len, rng)));
            if cut { script.cut_after(len as u64) } else { script }
        };
        let slowly =
            play(Pace { frame: Duration::from_millis(10), search: Duration::from_millis(30), ..Pace::INSTANT });
        let at_once = play(Pace::INSTANT);
        let fresh = play(Pace { frame: Duration::from_millis(3), ..Pace::INSTANT }).with_fresh_ids();
        self.add(&format!("{at}/slowly"), slowly, ending, Sent::These(sse.clone())).is_transcodable = true;
        self.add(&format!("{at}/at-once"), at_once, ending, Sent::These(sse)).is_transcodable = true;
        let item = self.add(&format!("{at}/fresh-ids"), fresh, ending, Sent::SoMany(len));
        (item.is_transcodable, item.has_fresh_ids) = (true, has_ids);
    }

    fn faults(&mut self, rng: &mut Rng) {
        let id = "e6f695cb53a23d7209929e749405c534";
        let whole = Bytes::from(tencent::answer(id));
        let sse = |steps: Vec<Step>| Script::sse_steps(steps);
        for n in 0..4 {
            let at = rng.within(1..whole.len());
            let script = Script::sse(whole.clone()).cut_after(at as u64);
            self.add(&format!("/fault/cut/{n}"), script, Ending::Abort, Sent::These(whole.slice(..at)));
            let garbage: Bytes = (0..rng.within(1..20_000)).map(|_| rng.next() as u8).collect();
            self.add(&format!("/fault/garbage/{n}"), Script::sse(garbage.clone()), Ending::Clean, Sent::These(garbage));
        }
        let large = format!("data:{}\n\n", "x".repeat(BEYOND_IT));
        let large = Bytes::from(tencent::references(id, &[1]) + &large + &tencent::finish(id));
        self.add("/fault/large", Script::sse(large.clone()), Ending::Clean, Sent::These(large));
        let idle = vec![Step::Send(whole.slice(..200)), Step::Pause(FOR_EVER)];
        self.add("/fault/idle", sse(idle), Ending::Abort, Sent::These(whole.slice(..200)));
        let bulk = vec![Step::Bulk { len: BULK, chunk: 16 << 10 }];
        self.add("/fault/bulk", sse(bulk), Ending::Clean, Sent::SoMany(BULK as usize));
        let encoded = Script::sse(whole.clone()).header(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        self.add("/fault/encoded", encoded, Ending::Clean, Sent::These(whole.clone()));
        let error = Bytes::from_static(b"{\"error\":\"no\"}");
        let failed = Script::json(error.clone()).status(StatusCode::INTERNAL_SERVER_ERROR);
        self.add("/fault/failed", failed, Ending::Clean, Sent::These(error)).status = 500;
        self.add("/fault/reset", sse(vec![Step::Abort]), Ending::Abort, Sent::These(Bytes::new()));
        self.add("/fault/hang", Script::hang(), Ending::Clean, Sent::Nothing).status = 504;
        let item = Item { status: 502, sent: Sent::Nothing, path: "/dead/x".to_owned(), ..self.items[0].clone() };
        self.items.push(Item { ending: Ending::Clean, is_transcodable: false, ..item });
    }
}

/// Only short captures byte by byte, because every piece is a task switch, which is slow on a busy machine.
fn chunking(len: usize, rng: &mut Rng) -> Chunking {
    match rng.within(0..4) {
        0 if len < 1500 => Chunking::Bytes(rng.within(1..8)),
        0 | 1 => Chunking::Bytes(rng.within(300..3000)),
        _ => Chunking::Frames,
    }
}

fn folder(path: &Path) -> String {
    path.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned()
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap().to_string_lossy().into_owned()
}

/// Whole JSON responses.
fn wholes() -> Vec<PathBuf> {
    let mut all = Vec::new();
    for folder in ["doubao", "tencent", "openai"] {
        for entry in fs::read_dir(fixtures().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.strip_suffix(".json").is_some_and(|case| !case.contains('.')) {
                all.push(path);
            }
        }
    }
    all.sort();
    assert!(all.len() > 6, "{all:?}");
    all
}

/// Short timeouts, so that every wait ends within the run. Records expire after seconds.
pub fn toml(upstream: &str, warm: &str) -> String {
    let mut toml = format!(
        "store = \"sqlite:soak.db\"\n\
         [records]\nttl = \"5s\"\nsweep = \"1s\"\n\
         [timeouts]\nfirst_byte = \"8s\"\nupstream_idle = \"2s\"\nclient_stall = \"2s\"\nrequest_headers = \"2s\"\n\
         heartbeat = \"1s\"\ndrain = \"5s\"\n\
         [limits]\nframe = \"{FRAME_CAP}\"\n"
    );
    toml += &keys();
    let providers = captures().into_iter().map(|(provider, path)| (folder(&path), provider.as_str()));
    let routes: BTreeMap<String, &str> = providers.chain([("fault".to_owned(), "auto")]).collect();
    for (name, provider) in routes {
        toml += &route(&name, &format!("{upstream}/{name}"));
        toml += &format!("provider = \"{provider}\"\n");
    }
    toml += &route("auto", upstream);
    toml += &route("warm", warm);
    toml += &route("dead", &format!("http://127.0.0.1:{}", dead_port()));
    toml
}
