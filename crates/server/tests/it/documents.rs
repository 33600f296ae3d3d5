//! What the documents say works.

mod parity;
mod rings;
mod workflows;

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tidegate::GrpcAddress;
use tidegate_ratelimit::{Configuration, SameDomain, Source};

use crate::support::{Server, await_that, get};
use crate::tls::authority::borrowed;
use crate::tls::{Authority, Folder};
use crate::workflows::{Flows, redis, workflow};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(path)).unwrap()
}

/// The fenced blocks of a language, in order.
fn blocks<'t>(text: &'t str, language: &str) -> Vec<&'t str> {
    let opening = format!("```{language}\n");
    text.split(opening.as_str())
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect()
}

fn assert_loads(name: &str, text: &str) {
    let source = Source {
        name: name.to_owned(),
        text: text.into(),
    };
    let loaded = Configuration::load(&[source], SameDomain::Refuse);
    assert!(loaded.is_ok(), "{name}: {}", loaded.unwrap_err()[0]);
}

#[test]
fn configurations_shown_to_users_load() {
    for (page, number) in [
        ("README.md", 1),
        ("docs/rate-limits.md", 6),
        ("docs/workflows.md", 1),
    ] {
        let text = read(page);
        let shown = blocks(&text, "yaml");
        assert_eq!(shown.len(), number, "{page}");
        shown.iter().for_each(|text| assert_loads(page, text));
    }
    assert_loads("example.yaml", &read("examples/envoy/config/example.yaml"));
}

#[test]
fn settings_named_in_documents_exist() {
    let settings = read("docs/settings.md");
    for path in [
        "README.md",
        "docs/deploy.md",
        "docs/rate-limits.md",
        "docs/from-ratelimit.md",
        "docs/redis-keys.md",
        "examples/envoy/README.md",
    ] {
        let text = read(path);
        let words = text.split(|letter: char| {
            !(letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_')
        });
        // Every setting but four short ones has an underscore, and so have few other words in capitals.
        for word in words.filter(|word| {
            word.len() > 4
                && word.contains('_')
                && word.starts_with(|first: char| first.is_ascii_uppercase())
        }) {
            let known = settings.contains(&format!("`{word}`")) || NOT_SETTINGS.contains(&word);
            assert!(
                known,
                "{path} names {word}, which docs/settings.md does not know"
            );
        }
    }
}

/// The names of our own metrics that a text has.
fn metrics(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    words.filter(|word| word.starts_with("tidegate_")).collect()
}

/// Few of the metrics of the page were in a document, and some under the names of another page.
#[test]
fn our_own_metrics_are_in_the_documents_and_no_others() {
    let redis = redis();
    let folder = Folder::new();
    folder.put(&Authority::new("ours").issue("127.0.0.1"));
    let tls = folder.grpc();
    let more = [
        ("USE_PROMETHEUS", "true"),
        ("PROMETHEUS_ADDR", "127.0.0.1:0"),
        ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
        ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
        ("TRACING_ENABLED", "true"),
        // Nobody listens there, and nothing is sent.
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9"),
    ];
    let (memory, redis) = (
        Flows::start(&[&borrowed(&tls)[..], &more].concat()),
        Flows::on(&redis),
    );
    let memcached = Server::start(&[
        ("BACKEND_TYPE", "memcache"),
        ("MEMCACHE_HOST_PORT", "127.0.0.1:1"),
    ]);
    memory.create(workflow("w", "a"));
    memory.succeed(&memory.claim(1)[0], serde_json::Value::Null);
    let page = |flows: &Flows| get(flows.server.debug(), "/metrics").body;
    await_that("queues are shown", || {
        page(&memory).contains("tidegate_queue_ready_jobs")
    });
    await_that("certificates are looked at", || {
        page(&memory).contains("tidegate_certificates_seconds_left")
    });
    folder.write("tokens", "admin ada a-token-of-the-test\n");
    let tokens = Flows::start(&[("TIDEGATE_TOKENS_FILE", &folder.text("tokens"))]);
    // Datagrams need no receiver.
    let statsd = Server::start(&[("USE_STATSD", "true"), ("STATSD_PROTOCOL", "udp")]);
    let pages = page(&memory)
        + &page(&redis)
        + &page(&tokens)
        + &get(statsd.debug(), "/metrics").body
        + &get(memcached.debug(), "/metrics").body;
    let (document, limits) = (read("docs/metrics.md"), read("docs/guarantees.md"));
    let families = pages
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .collect::<Vec<_>>()
        .join("\n");
    assert_eq!(
        metrics(&document),
        metrics(&families),
        "docs/metrics.md and the page"
    );
    assert!(
        metrics(&limits).is_subset(&metrics(&document)),
        "{:?}",
        metrics(&limits).difference(&metrics(&document))
    );
    assert!(
        !limits.contains("`tidegate."),
        "names are those of /metrics"
    );
}

/// Words in capitals that documents use for something else.
const NOT_SETTINGS: [&str; 14] = [
    "OVER_LIMIT",
    "NOT_SERVING",
    "STRICT_DNS",
    "GRPC_XDS_SOTW",
    "DD_ENV",
    "DOG_STATSD_MOGRIFIERS_",
    "DOG_STATSD_MOGRIFIER_",
    "INVALID_ARGUMENT",
    "OUT_OF_RANGE",
    "REDIS_POOL_ON_EMPTY_WAIT_DURATION",
    "RESOURCE_EXHAUSTED",
    "SO_REUSEPORT",
    "USE_CALENDAR_MONTH_RATE_LIMIT",
    "TIDEGATE_BINARY",
];

/// The page of failures is worth what its tests are: each that is named must be there. `…` stands for the rest of a name.
#[test]
fn tests_named_for_failures_exist() {
    let text = read("docs/guarantees.md");
    let words = text.split('`').skip(1).step_by(2);
    // A type begins with a capital, and a test does not.
    let named: Vec<&str> = words
        .filter(|word| word.contains("::") && word.starts_with(char::is_lowercase))
        .collect();
    assert!(named.len() > 40, "{named:?}");
    for name in named {
        let (folder, path) = match name.split_once('/') {
            Some(("server", path)) => ("crates/server/tests/it", path),
            Some(("workflow", path)) => ("crates/workflow/tests/it", path),
            Some(("src", path)) => ("crates/pipeline/src", path),
            _ => ("crates/pipeline/tests/it", name),
        };
        let (module, last) = path.rsplit_once("::").unwrap();
        let source = read(&format!("{folder}/{}.rs", module.replace("::", "/")));
        let wanted = match last.strip_suffix('…') {
            Some(beginning) => format!("fn {beginning}"),
            None => format!("fn {last}("),
        };
        let is_there = source.contains(&wanted) || source.contains(&format!("mod {last};"));
        assert!(
            is_there,
            "docs/guarantees.md names {name}, which is not there"
        );
    }
}

/// Every page of the repository that people read.
fn pages() -> Vec<PathBuf> {
    let examples = ["envoy", "envoy-gateway", "istio", "python", "workflows"]
        .map(|name| format!("examples/{name}"));
    let folders = ["", "docs"]
        .into_iter()
        .chain(examples.iter().map(String::as_str))
        .map(|folder| Path::new(ROOT).join(folder))
        .collect::<Vec<_>>();
    let files = folders.iter().flat_map(|folder| {
        std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
    });
    files
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect()
}

/// A page without its code blocks.
fn prose(text: &str) -> String {
    text.split("```").step_by(2).collect()
}

/// The anchors of a page, as GitHub makes them from its headings.
fn anchors(text: &str) -> Vec<String> {
    let prose = prose(text);
    let headings = prose
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| line.trim_start_matches('#').trim());
    let mut seen = HashMap::new();
    let slug = |heading: &str| -> String {
        let kept = heading.to_lowercase().replace(' ', "-");
        kept.chars()
            .filter(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_'))
            .collect()
    };
    let anchor = |heading: &str| {
        let slug = slug(heading);
        let before = seen.entry(slug.clone()).or_insert(0);
        *before += 1;
        if *before == 1 {
            slug
        } else {
            format!("{slug}-{}", *before - 1)
        }
    };
    headings.map(anchor).collect()
}

#[test]
fn links_of_documents_lead_somewhere() {
    let pages = pages();
    assert!(pages.len() > 12, "{pages:?}");
    let mut links = 0;
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        let prose = prose(&text);
        for link in prose
            .split("](")
            .skip(1)
            .map(|rest| rest.split(')').next().unwrap())
        {
            if link.contains("://") {
                continue;
            }
            links += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() {
                page.clone()
            } else {
                page.parent().unwrap().join(file)
            };
            assert!(
                target.exists(),
                "{} links to {link}, which does not exist",
                page.display()
            );
            if !anchor.is_empty() {
                let anchors = anchors(&std::fs::read_to_string(&target).unwrap());
                assert!(
                    anchors.iter().any(|a| a == anchor),
                    "{} links to {link}: {anchors:?}",
                    page.display()
                );
            }
        }
    }
    assert!(links > 30, "{links}");
}

#[test]
fn the_readme_shows_what_a_first_start_prints() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path().to_str().unwrap();
    let server = Server::start_bare(&[
        ("TIDEGATE_HTTP_ADDR", "127.0.0.1:0"),
        ("TIDEGATE_DATA_DIR", data),
    ]);
    let mut started = server.started.clone();
    let every = |port| SocketAddr::from(([0, 0, 0, 0], port));
    started.addresses.grpc = GrpcAddress::Tcp(every(8081));
    started.addresses.http = every(8080);
    started.addresses.debug = Some(every(6070));
    started.addresses.api = Some(SocketAddr::from(([127, 0, 0, 1], 7070)));
    started.workflows = Some("./tidegate-data/workflows.db".to_owned());
    // The revision is another one with each commit.
    let banner = started.to_string().replace(
        tidegate::VERSION,
        concat!(env!("CARGO_PKG_VERSION"), "+4f2a91c"),
    );
    // `make run` builds with a profile of its own, and the banner says so.
    let (version, rest) = banner.split_once('\n').unwrap();
    let quick = "  build          for a first look; `make install` builds a faster one";
    let banner = format!("{version}\n{quick}\n{rest}");
    assert!(
        read("README.md").contains(&banner),
        "README.md does not show\n{banner}"
    );
}

/// Ends the worker with the test.
struct Worker(std::process::Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_example_of_a_workflow_succeeds() {
    check_example(&[], "");
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, "admin me a-token-of-the-test\n").unwrap();
    check_example(
        &[("TIDEGATE_TOKENS_FILE", tokens.to_str().unwrap())],
        "a-token-of-the-test",
    );
}

fn check_example(settings: &[(&str, &str)], token: &str) {
    let data = tempfile::tempdir().unwrap();
    let data = data.path().to_str().unwrap();
    let ours = [
        ("TIDEGATE_HTTP_ADDR", "127.0.0.1:0"),
        ("TIDEGATE_DATA_DIR", data),
    ];
    let server = Server::start_bare(&[&ours[..], settings].concat());
    let address = format!("http://{}", server.started.addresses.api.unwrap());
    let mut worker = Command::new("python3");
    worker
        .current_dir(ROOT)
        .arg("examples/workflows/worker.py")
        .env("TIDEGATE_SERVER", &address)
        .stderr(Stdio::null());
    worker.env("TIDEGATE_TOKEN", token);
    let _worker = Worker(worker.spawn().unwrap());
    let mut run = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    run.current_dir(ROOT).args([
        "workflow",
        "run",
        "examples/workflows/report.yaml",
        "--timeout",
        "20s",
    ]);
    let output = run
        .env("TIDEGATE_SERVER", &address)
        .env("TIDEGATE_TOKEN", token)
        .output()
        .unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
}

/// The file that a document names by its path in `crates/`, without `src/`.
fn source(path: &str) -> Option<String> {
    let (name, rest) = path.split_once('/')?;
    let package = Path::new(ROOT).join("crates").join(name);
    std::fs::read_to_string(package.join("src").join(rest)).ok()
}

/// The way to a place in the code is worth nothing when the file or the function has another name by now.
#[test]
fn the_hops_of_the_architecture_exist() {
    let text = read("ARCHITECTURE.md");
    let section = text
        .split("## Three hops")
        .nth(1)
        .unwrap()
        .split("\n## ")
        .next()
        .unwrap();
    let rows: Vec<&str> = section
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains('`'))
        .collect();
    assert!(rows.len() > 20, "{rows:?}");
    for row in rows {
        assert!(row.matches("->").count() < 3, "more than three hops: {row}");
        let (mut package, mut file) = ("", String::new());
        for name in row.split('`').skip(1).step_by(2) {
            if let Some(text) = source(name) {
                package = name.split('/').next().unwrap();
                file = text;
            } else if name.ends_with(".rs") {
                file = source(&format!("{package}/{name}"))
                    .unwrap_or_else(|| panic!("{name} does not exist: {row}"));
            } else {
                let last = name.rsplit("::").next().unwrap();
                let found = ["fn", "struct", "enum", "const"].map(|word| format!("{word} {last}"));
                assert!(
                    found.iter().any(|found| file.contains(found.as_str())),
                    "{name} is not in its file: {row}"
                );
            }
        }
    }
}
