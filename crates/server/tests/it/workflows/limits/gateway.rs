//! One limit over the gateway and the workers. Real Envoy in front of a vendor asks for a unit before each request, and workers call the same vendor
//! for jobs, which had their units before. The vendor counts: no window has more than its units, and while both sides want more, they are used.

mod ledger;
mod vendor;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::park_timeout;
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde_json::{Value, json};

use super::super::kill::Served;
use super::super::kill::client::Client;
use super::super::{ask, found, redis};
use super::moments::{now, told};
use crate::rls::envoy::{front_with, replaced};
use crate::support::{Limits, await_that, number, stat};
use ledger::{Rule, Unit};
use vendor::{Caller, Calls, EARLIEST, LATEST, Vendor};

/// How long both sides go on, in seconds. By hand longer: then it is also checked that units are used.
const LASTS: u64 = 6;
const LONGER: &str = "TIDEGATE_LIMITS_SECONDS";

const SECOND: Rule = Rule {
    name: "second",
    window: 1_000_000,
    units: 5,
};
const MINUTE: Rule = Rule {
    name: "minute",
    window: 60_000_000,
    units: 60,
};
const RULES: &str = "\
domain: vendor
descriptors:
  - key: second
    rate_limit: { unit: second, requests_per_unit: 5 }
  - key: minute
    rate_limit: { unit: minute, requests_per_unit: 60 }
";

/// The rules of tenants, and how many tenants there are of them.
const TENANTS: [(&[Rule], usize); 3] = [(&[SECOND], 40), (&[MINUTE], 40), (&[SECOND, MINUTE], 20)];
const WORKERS: usize = 16;
/// Jobs of a claim.
const CLAIMED: usize = 8;
/// Those who send requests, and the pause of each after one: together some hundred a second.
const SENDERS: usize = 6;
const PAUSE: Duration = Duration::from_millis(15);
const LEASE: u64 = 30;
/// The time of leases is an estimate of Redis' clock.
const MARGIN: u64 = 50_000;

#[test]
fn requests_and_jobs_use_one_limit_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    one_limit_holds(&[&[(
        "TIDEGATE_DATA_DIR",
        folder.path().join("data").to_str().unwrap().to_owned(),
    )]]);
}

#[test]
fn requests_and_jobs_use_one_limit_of_two_servers_on_one_redis() {
    let redis = redis();
    let store = [
        ("REDIS_URL", redis.address().to_string()),
        ("REDIS_SOCKET_TYPE", "tcp".to_owned()),
    ];
    one_limit_holds(&[&store, &store]);
}

/// Both sides want all that they can get from servers with these stores.
fn one_limit_holds(stores: &[&[(&'static str, String)]]) {
    let limits = Limits::new(RULES);
    let root = ("RUNTIME_ROOT", limits.root().to_owned());
    let start = |store: &&[_]| Served::start(&[store, &[root.clone()][..]].concat());
    let servers: Vec<Served> = stores.iter().map(start).collect();
    let vendor = Vendor::start(&[SECOND.name, MINUTE.name]);
    let span = compete(&servers, &vendor);
    let calls = vendor.calls();
    for rule in [SECOND, MINUTE] {
        check(&rule, &calls, span);
        let name = format!(
            "ratelimit.service.rate_limit.vendor.{}.within_limit",
            rule.name
        );
        let granted = servers
            .iter()
            .map(|server| stat(server.address("debug"), &name));
        let granted: u64 = granted.sum();
        let of_rule = calls.iter().filter(|((name, _), _)| name == rule.name);
        let used: usize = of_rule.map(|(_, calls)| calls.len()).sum();
        assert!(
            used as u64 <= granted,
            "{used} calls were made with {granted} units"
        );
    }
}

/// Lets workers and callers of the gateway ask for units as fast as they can. Returns when they began and ended.
fn compete(servers: &[Served], vendor: &Vendor) -> (u64, u64) {
    let ports = servers.iter().map(|server| server.address("gRPC").port());
    let deciding: Vec<u16> = ports.collect();
    let (_envoy, front) =
        front_with(|example| before_the_vendor(&example, &deciding, vendor.address.port()));
    let front = SocketAddr::from(([127, 0, 0, 1], front));
    let lasts = Duration::from_secs(number(LONGER).unwrap_or(LASTS));
    let tenants = tenants();
    for tenant in &tenants {
        create_jobs(servers[0].api, tenant, lasts);
    }
    let apis: Arc<[_]> = servers.iter().map(|server| server.api).collect();
    let over = Arc::new(AtomicBool::new(false));
    let client =
        |addresses: Arc<[SocketAddr]>, first| Client::new(addresses, first, Arc::clone(&over));
    let to_one = |address| client(Arc::new([address]), 0);
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (server, vendor) = (client(Arc::clone(&apis), worker), to_one(vendor.address));
            scope.spawn(move || work(server, vendor));
        }
        for sender in 0..SENDERS {
            let (gateway, tenants) = (to_one(front), &tenants);
            scope.spawn(move || send(gateway, tenants, Rng::with_seed(sender as u64)));
        }
        // Also if this fails: the others would go on for ever.
        let _over = Over(Arc::clone(&over));
        await_that("both sides get units", || {
            let calls = vendor.calls();
            [Caller::Request, Caller::Job]
                .iter()
                .all(|by| calls.values().flatten().any(|(caller, _)| caller == by))
        });
        let (begin, until) = (now(), Instant::now() + lasts);
        while Instant::now() < until {
            park_timeout(until - Instant::now());
        }
        (begin, now())
    })
}

/// Ends all traffic when dropped.
struct Over(Arc<AtomicBool>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// The configuration of the example, before a vendor, with these servers, and with a descriptor for each rule that a request names.
fn before_the_vendor(example: &str, servers: &[u16], vendor: u16) -> String {
    let action = |rule: &str| {
        format!(
            "actions:\n{}- request_headers: {{ header_name: x-{rule}, descriptor_key: {rule} }}",
            " ".repeat(34)
        )
    };
    let actions = format!(
        "{}\n{}- {}",
        action(SECOND.name),
        " ".repeat(30),
        action(MINUTE.name)
    );
    let text = replaced(example, &action("user"), &actions);
    let text = replaced(&text, "domain: example #", "domain: vendor #");
    let text = replaced(&text, "failure_mode_deny: false", "failure_mode_deny: true");
    let (before, clusters) = text.split_once("\n  clusters:\n").unwrap();
    let clusters = replaced(
        clusters,
        "port_value: 10001 }",
        &format!("port_value: {vendor} }}"),
    );
    let (first, others) = servers.split_first().unwrap();
    let other = |port: &u16| {
        format!(
            "\n{}- endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }} }}",
            " ".repeat(14)
        )
    };
    let ports = format!(
        "port_value: {first} }}{}",
        others.iter().map(other).collect::<String>()
    );
    format!(
        "{before}\n  clusters:\n{}",
        replaced(&clusters, "port_value: 8081 }", &ports)
    )
}

/// Each tenant by its rules, as the params of its jobs and the headers of its requests name it.
fn tenants() -> Vec<Value> {
    let of = |(rules, number): &(&[Rule], usize)| -> Vec<Value> {
        let tenant = |at: usize| {
            let name = |rule: &Rule| (rule.name.to_owned(), json!(format!("{}-{at}", rules.len())));
            Value::Object(rules.iter().map(name).collect())
        };
        (0..*number).map(tenant).collect()
    };
    TENANTS.iter().flat_map(of).collect()
}

fn headers(tenant: &Value) -> String {
    let rules = [SECOND, MINUTE]
        .into_iter()
        .filter_map(|rule| Some((rule, tenant[rule.name].as_str()?)));
    rules
        .map(|(rule, tenant)| format!("x-{}: {tenant}\r\n", rule.name))
        .collect()
}

/// More jobs of a tenant than there are units for in this time.
fn create_jobs(server: SocketAddr, tenant: &Value, lasts: Duration) {
    let rules: Vec<Rule> = [SECOND, MINUTE]
        .into_iter()
        .filter(|rule| tenant[rule.name].is_string())
        .collect();
    let room = |rule: &Rule| (lasts.as_micros() as u64 / rule.window + 2) as usize * rule.units;
    // Some units are used before the time begins.
    let number = rules.iter().map(room).min().unwrap() + 60;
    let limit = |rule: &Rule| json!({"domain": "vendor", "entries": [[rule.name, format!("$.{}", rule.name)]]});
    let limits: Vec<Value> = rules.iter().map(limit).collect();
    let job = |at| json!({"name": format!("call {at}"), "handler": "call", "limits": limits});
    let jobs: Vec<Value> = (0..number).map(job).collect();
    let body = json!({"name": "calls", "globals": tenant, "jobs": jobs});
    found(ask(server, "POST", "/v1/workflows", &[], &body.to_string()));
}

/// A worker that calls the vendor for each of its jobs.
fn work(mut server: Client, mut vendor: Client) {
    let claim = json!({"queues": ["default"], "worker": "w", "limit": CLAIMED, "lease": format!("{LEASE}s"), "wait": "1s"});
    let mut reports: Vec<Value> = Vec::new();
    while let Some((status, answer)) = server.post(
        "/v1/jobs/report",
        &json!({"reports": reports, "claim": claim}),
    ) {
        let latest = now();
        assert_eq!(status, 200, "{answer}");
        reports.clear();
        for job in answer["jobs"].as_array().unwrap() {
            // The lease began before its units were taken.
            let earliest = told(&job["lease_expires_at"]) - LEASE * 1_000_000 - MARGIN;
            let headers = headers(&job["params"])
                + &format!("{EARLIEST}: {earliest}\r\n{LATEST}: {latest}\r\n");
            let called = vendor
                .ask_once("GET", "/", &headers, "")
                .expect("the vendor answers");
            assert_eq!(called.0, 200);
            reports.push(json!({"lease": job["lease"], "outcome": "succeeded"}));
        }
    }
}

/// A client whose requests go through Envoy.
fn send(mut gateway: Client, tenants: &[Value], mut rng: Rng) {
    while !gateway.is_over() {
        let headers = headers(rng.choice(tenants).unwrap()) + &format!("{EARLIEST}: {}\r\n", now());
        let answered = gateway
            .ask_once("GET", "/", &headers, "")
            .expect("Envoy answers")
            .0;
        // 500: Tidegate did not answer in time.
        assert!(matches!(answered, 200 | 429 | 500), "{answered}");
        park_timeout(PAUSE);
    }
}

/// No window of any tenant had more than its units, and in a long run, those that both sides could have were used.
fn check(rule: &Rule, calls: &Calls, (begin, end): (u64, u64)) {
    let (mut used, mut most, mut by_jobs, mut all) = (0, 0, 0, 0);
    // Windows that were wholly within the time.
    let full = begin.div_ceil(rule.window)..end / rule.window;
    for ((_, tenant), calls) in calls.iter().filter(|((name, _), _)| name == rule.name) {
        let units: Vec<Unit> = calls.iter().map(|(_, unit)| *unit).collect();
        let windows = rule.windows(&units).unwrap_or_else(|unit| {
            panic!("{tenant} had more than it may in a {}: {unit:?}", rule.name)
        });
        most = most.max(rule.most(&units));
        by_jobs += calls
            .iter()
            .filter(|(caller, _)| *caller == Caller::Job)
            .count();
        all += calls.len();
        // The units of others are held back by their second rule.
        if tenant.starts_with("1-") {
            used += full
                .clone()
                .filter_map(|window| windows.get(&window))
                .sum::<usize>();
        }
    }
    let tenants = TENANTS
        .iter()
        .filter(|(rules, _)| rules.len() == 1 && rules[0].name == rule.name)
        .map(|(_, number)| number);
    let allowed = full.clone().count() * rule.units * tenants.sum::<usize>();
    let percent = 100.0 * used as f64 / allowed.max(1) as f64;
    eprintln!(
        "{}: {used} of {allowed} units of {} windows ({percent:.2} %), at most {most} of {} in one; {by_jobs} of all {all} by jobs",
        rule.name,
        full.count(),
        rule.units,
    );
    assert!(
        number(LONGER).is_none() || allowed == 0 || percent >= 98.0,
        "units are not used"
    );
}
