//! Connections to Redis: created for each core, awaited at start, and checked for health.

use std::time::{Duration, Instant};

use tidegate_pipeline::{Batch, Client, CommandError};
use tokio::time::{sleep, timeout};
use tracing::{error, info, warn};

use crate::settings::{Redis, RedisServer, SettingsOrigin};
use crate::supervise::error::ServeError;
use crate::supervise::health::{Health, PartHealth};

/// Maximum of time for one PING.
const PING_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval of PINGs when health depends on them, up to a quarter more or less.
const PING_INTERVAL: Duration = Duration::from_secs(1);
/// Time of failing PINGs after which health is off, up to twice that. Each server chooses its own
/// time, so that a pause of Redis does not make all servers unready at one moment. Those that are
/// still ready answer by their failure mode.
const UNHEALTHY_AFTER: Duration = Duration::from_secs(3);
/// Minimum of consecutive failed PINGs before health is off.
const MIN_FAILURES: u32 = 3;

/// The clients of one core.
#[derive(Debug, Clone)]
pub(crate) struct RedisClients {
    pub(crate) main: Client,
    pub(crate) per_second: Option<Client>,
}

impl RedisClients {
    /// Creates clients on the current runtime, which connect on demand.
    pub(crate) fn new(settings: &Redis) -> Result<Self, ServeError> {
        let client = |server: &RedisServer| {
            Client::new(server.config.clone()).map_err(|source| ServeError::Redis {
                address: server.shown.clone(),
                reason: source.to_string(),
            })
        };
        Ok(Self {
            main: client(&settings.main)?,
            per_second: settings.per_second.as_ref().map(client).transpose()?,
        })
    }
}

/// Waits until every Redis answers. The delay between two attempts doubles up to a bound.
///
/// # Errors
/// Redis did not answer within the time that the settings allow.
pub(crate) async fn wait_for_all(
    settings: &Redis,
    clients: &RedisClients,
) -> Result<(), ServeError> {
    let second = settings
        .per_second
        .as_ref()
        .zip(clients.per_second.as_ref());
    for (server, client) in second.into_iter().chain([(&settings.main, &clients.main)]) {
        wait_for(settings, server, client).await?;
    }
    Ok(())
}

async fn wait_for(
    settings: &Redis,
    server: &RedisServer,
    client: &Client,
) -> Result<(), ServeError> {
    let started = Instant::now();
    let mut pause = settings.startup_initial;
    while let Err(error) = ping(client).await {
        let error = error.to_string();
        let elapsed = started.elapsed();
        let login = login_advice(&error, &server.origin);
        let kind = kind_advice(&error, &server.origin);
        if settings
            .startup_give_up
            .is_some_and(|limit| elapsed + pause > limit)
        {
            let advice = login.or(kind).map(|advice| format!("; {advice}"));
            let advice = advice.unwrap_or_default();
            return Err(ServeError::Redis {
                address: server.shown.clone(),
                reason: format!("gave up after {}: {error}{advice}", seconds(elapsed)),
            });
        }
        match login {
            Some(advice) => {
                error!(address = server.shown, %error, "redis refuses this server: {advice}; trying again")
            }
            None => {
                let advice = kind.map(|advice| format!("; {advice}")).unwrap_or_default();
                warn!(address = server.shown, %error, "waiting for redis; the ports open when it answers{advice}");
            }
        }
        // Up to a tenth less, so that servers that started together do not retry together.
        sleep(pause.mul_f64(1.0 - 0.1 * fastrand::f64())).await;
        pause = (pause * 2).min(settings.startup_max);
    }
    info!(address = server.shown, "redis answers");
    Ok(())
}

/// Advice if Redis, or a sentinel, refuses the login or a command of this server.
pub(crate) fn login_advice(error: &str, origin: &SettingsOrigin) -> Option<String> {
    // An error may contain the answers of several servers.
    error.split("; ").find_map(|answer| {
        if answer.contains(SENTINEL_PREFIX) {
            sentinel_login_advice(answer, origin)
        } else {
            server_login_advice(answer, &origin.auth)
        }
    })
}

/// The word that the engine writes before the address of a sentinel and its answer.
pub(crate) const SENTINEL_PREFIX: &str = "sentinel ";

fn sentinel_login_advice(
    answer: &str,
    SettingsOrigin {
        url, sentinel_auth, ..
    }: &SettingsOrigin,
) -> Option<String> {
    let refusal = match auth_refusal(answer)? {
        AuthRefusal::WrongLogin => "the sentinel does not accept the user or the password",
        AuthRefusal::NoLogin => "the sentinel wants a password of its own",
        AuthRefusal::NoPermission => {
            "its user at the sentinel must be allowed PING, SUBSCRIBE and SENTINEL GET-MASTER-ADDR-BY-NAME"
        }
    };
    Some(format!(
        "{refusal}, see {sentinel_auth}, or the user and password in {url}"
    ))
}

fn server_login_advice(answer: &str, auth: &str) -> Option<String> {
    Some(match auth_refusal(answer)? {
        AuthRefusal::WrongLogin => {
            format!("it does not accept the user or the password, see {auth}")
        }
        AuthRefusal::NoLogin => format!("it wants a password, see {auth}"),
        AuthRefusal::NoPermission => format!(
            "its user must be allowed PING, INCRBY and EXPIRE, see {auth} and `ACL GETUSER`"
        ),
    })
}

/// The reason why a server refuses the login or a command of this server.
enum AuthRefusal {
    WrongLogin,
    NoLogin,
    NoPermission,
}

fn auth_refusal(answer: &str) -> Option<AuthRefusal> {
    let has = |code: &str| answer.contains(code);
    if has("WRONGPASS") || has("ERR AUTH") || has("invalid password") {
        Some(AuthRefusal::WrongLogin)
    } else if has("NOAUTH") {
        Some(AuthRefusal::NoLogin)
    } else if has("NOPERM") {
        Some(AuthRefusal::NoPermission)
    } else {
        None
    }
}

/// Advice if the settings say another kind of Redis, or the sentinels do not know the name of the
/// primary.
pub(crate) fn kind_advice(
    error: &str,
    SettingsOrigin { url, kind, .. }: &SettingsOrigin,
) -> Option<String> {
    Some(if error.contains("does not know the master") {
        format!(
            "begin {url} with the name that `sentinel monitor` gives the primary; `SENTINEL MASTERS` lists them"
        )
    } else if error.contains(SENTINEL_PREFIX) && error.contains("ERR unknown command") {
        format!("what answers is no sentinel: name sentinels in {url}, or set {kind}=single")
    } else if error.contains("MOVED ") {
        format!("it is a node of a cluster: set {kind}=cluster")
    } else if error.contains("cluster support disabled") {
        format!("if it is not a cluster, set {kind}=single")
    } else {
        return None;
    })
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

async fn ping(client: &Client) -> Result<(), CommandError> {
    let mut batch = Batch::new();
    batch.unit().command("PING", &[]);
    let outcomes = client.send(batch, Instant::now() + PING_TIMEOUT).await;
    outcomes
        .first()
        .expect("one outcome per command")
        .reply()
        .map(|_| ())
}

/// Sets health by the answers of Redis.
pub(crate) async fn watch_health(clients: RedisClients, health: Health) {
    let mut ping_health = PingHealth::new(UNHEALTHY_AFTER.mul_f64(1.0 + fastrand::f64()));
    loop {
        sleep(PING_INTERVAL.mul_f64(0.75 + 0.5 * fastrand::f64())).await;
        let mut answered = true;
        for client in std::iter::once(&clients.main).chain(&clients.per_second) {
            answered &= matches!(timeout(2 * PING_TIMEOUT, ping(client)).await, Ok(Ok(())));
        }
        let part = ping_health.on_ping(answered, Instant::now());
        match (health.set_store(part), part) {
            (true, PartHealth::Unhealthy) => {
                warn!(
                    failures = ping_health.failures,
                    "health is off: redis does not answer PING (REDIS_HEALTH_CHECK_ACTIVE_CONNECTION)"
                );
            }
            (true, PartHealth::Healthy) => info!("health is on again: redis answers PING"),
            (false, _) => {}
        }
    }
}

/// Whether PINGs have failed for long enough.
#[derive(Debug)]
struct PingHealth {
    unhealthy_after: Duration,
    failures: u32,
    /// The time of the first of the consecutive failures.
    first: Option<Instant>,
}

impl PingHealth {
    fn new(unhealthy_after: Duration) -> Self {
        Self {
            unhealthy_after,
            failures: 0,
            first: None,
        }
    }

    /// Returns the health of Redis after a PING.
    fn on_ping(&mut self, answered: bool, now: Instant) -> PartHealth {
        if answered {
            *self = Self::new(self.unhealthy_after);
            return PartHealth::Healthy;
        }
        self.failures += 1;
        let first = *self.first.get_or_insert(now);
        PartHealth::healthy_if(
            self.failures < MIN_FAILURES || now.duration_since(first) < self.unhealthy_after,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One PING that failed made every replica unready at the same moment.
    #[test]
    fn only_pings_that_fail_for_a_while_turn_health_off() {
        let start = Instant::now();
        let after = |ping_health: &mut PingHealth, beats: &[(u64, bool)]| {
            let mut part = PartHealth::Healthy;
            for &(second, answered) in beats {
                part = ping_health.on_ping(answered, start + Duration::from_secs(second));
            }
            part
        };
        for (beats, expected) in [
            (&[(0, false)][..], PartHealth::Healthy),
            (
                &[(0, false), (1, false), (2, false), (3, false)],
                PartHealth::Healthy,
            ),
            (
                &[(0, false), (1, false), (2, false), (4, false)],
                PartHealth::Unhealthy,
            ),
            (&[(0, false), (9, false)], PartHealth::Healthy),
            (
                &[
                    (0, false),
                    (1, false),
                    (2, true),
                    (3, false),
                    (4, false),
                    (5, false),
                ],
                PartHealth::Healthy,
            ),
            (
                &[(0, false), (1, false), (9, false), (10, true)],
                PartHealth::Healthy,
            ),
        ] {
            assert_eq!(
                after(&mut PingHealth::new(Duration::from_secs(4)), beats),
                expected,
                "{beats:?}"
            );
        }
    }

    fn origin() -> SettingsOrigin {
        let auth = "REDIS_AUTH".to_owned();
        SettingsOrigin {
            url: "REDIS_URL",
            kind: "REDIS_TYPE",
            auth,
            sentinel_auth: "REDIS_SENTINEL_AUTH",
        }
    }

    fn check_refusal(error: &str, expected: &str, setting: &str) {
        let advice = login_advice(error, &origin()).unwrap_or_default();
        assert!(
            advice.contains(expected) && advice.contains(&format!("see {setting}")),
            "{error}: {advice}"
        );
    }

    #[test]
    fn a_refusal_names_where_to_look() {
        check_refusal(
            "WRONGPASS invalid username-password pair or user is disabled.",
            "the user or the password",
            "REDIS_AUTH",
        );
        check_refusal(
            "ERR AUTH <password> called without any password configured",
            "password",
            "REDIS_AUTH",
        );
        check_refusal(
            "NOAUTH Authentication required.",
            "wants a password",
            "REDIS_AUTH",
        );
        check_refusal(
            "NOPERM User gate has no permissions to run the 'ping' command",
            "must be allowed PING",
            "REDIS_AUTH",
        );
        assert_eq!(
            login_advice("Connection refused (os error 111)", &origin()),
            None
        );
    }

    /// As the engine says it: the answers of several servers.
    #[test]
    fn a_refusal_of_several_servers_names_where_to_look() {
        let slot = "no redis node is known to own hash slot 0: sentinel 10.0.0.1:26379";
        let other = "sentinel 10.0.0.2:26379";
        let setting = "REDIS_SENTINEL_AUTH, or the user and password in REDIS_URL";
        let check_all = |answers: &[&str], expected: &str, setting: &str| {
            check_refusal(
                &format!("{slot}: {}", answers.join("; ")),
                expected,
                setting,
            );
        };
        check_all(
            &["NOAUTH Authentication required."],
            "the sentinel wants a password of its own",
            setting,
        );
        let wrong =
            format!("{other}: WRONGPASS invalid username-password pair or user is disabled.");
        check_all(
            &["no answer within 1s", &wrong],
            "the sentinel does not accept",
            setting,
        );
        check_all(
            &["NOPERM User x has no permissions"],
            "SENTINEL GET-MASTER-ADDR-BY-NAME",
            setting,
        );
        let primary = "the primary 10.0.0.3:6379: NOAUTH Authentication required.";
        check_all(
            &["no answer within 1s", primary],
            "it wants a password",
            "REDIS_AUTH",
        );
    }

    /// Each error without an owner was taken for a server that is not a cluster, that of a wrong password for sentinels too.
    #[test]
    fn another_kind_of_redis_names_what_to_set() {
        let check = |error: &str, expected: Option<&str>| {
            assert_eq!(
                kind_advice(error, &origin()).as_deref(),
                expected,
                "{error}"
            );
        };
        let slot = "no redis node is known to own hash slot 0";
        check(
            "MOVED 12395 127.0.0.1:26403",
            Some("it is a node of a cluster: set REDIS_TYPE=cluster"),
        );
        let single = Some("if it is not a cluster, set REDIS_TYPE=single");
        check(
            &format!("{slot}: 127.0.0.1:1: ERR This instance has cluster support disabled"),
            single,
        );
        let name = "begin REDIS_URL with the name that `sentinel monitor` gives the primary; `SENTINEL MASTERS` lists them";
        check(
            &format!("{slot}: sentinel 127.0.0.1:1: it does not know the master \"m\""),
            Some(name),
        );
        let none =
            "what answers is no sentinel: name sentinels in REDIS_URL, or set REDIS_TYPE=single";
        check(
            &format!("{slot}: sentinel 127.0.0.1:1: ERR unknown command 'SENTINEL'"),
            Some(none),
        );
        check(
            &format!("{slot}: sentinel 127.0.0.1:1: WRONGPASS invalid username-password pair"),
            None,
        );
        check(slot, None);
        check("Connection refused (os error 111)", None);
    }
}
