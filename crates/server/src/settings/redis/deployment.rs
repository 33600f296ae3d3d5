//! Parser of the URL of a Redis deployment: a single server, a cluster, or a master with its
//! sentinels.

use tidegate_pipeline::{Address, Servers};

use super::RedisVariables;
use super::target::{Login, RedisTarget, target};
use crate::settings::read::Values;
use crate::settings::table::value::mask_urls;

const NO_SENTINELS: &str = "Expected master name and a list of urls for the sentinels, in the format: <redis master name>,<sentinel1>,...,<sentineln>";

/// Deployment that a URL describes.
pub(super) struct Deployment {
    pub(super) servers: Servers,
    /// The first server in the URL. Its login is used at the servers that store the data.
    pub(super) first: RedisTarget,
    /// The servers without credentials, for people and logs.
    pub(super) shown: String,
}

/// Parses a URL according to the kind of deployment.
pub(super) fn deployment(
    values: &Values,
    names: &RedisVariables,
    url: &str,
) -> Result<Deployment, String> {
    let socket = names
        .socket
        .map(|name| values.text(name))
        .unwrap_or_default();
    match &*values.text(names.kind).to_lowercase() {
        "single" => single(names, url, &socket),
        "sentinel" => {
            let login = Login::from_setting(&values.text(names.sentinel_auth));
            sentinels(url, login)
        }
        _ => cluster(url),
    }
}

fn single(names: &RedisVariables, url: &str, socket: &str) -> Result<Deployment, String> {
    let host = url.rsplit('@').next().unwrap_or_default();
    if host.contains(',') && !host.starts_with('/') && socket != "unix" {
        let kind = names.kind;
        return Err(format!(
            "it names several servers, which need {kind}=cluster, or {kind}=sentinel after the name of a master"
        ));
    }
    let first = target(url, socket)?;
    Ok(Deployment {
        servers: Servers::Single(first.address.clone()),
        shown: mask_urls(&first.address.to_string()),
        first,
    })
}

fn cluster(url: &str) -> Result<Deployment, String> {
    let targets = targets(url)?;
    let addresses = addresses(&targets);
    Ok(Deployment {
        shown: format!("cluster {}", shown(&addresses)),
        servers: Servers::Cluster(addresses),
        first: merge_targets(targets)?,
    })
}

/// Parses the name of a master, and its sentinels. `sentinel_login` takes precedence over a login
/// in their URLs.
fn sentinels(url: &str, sentinel_login: Login) -> Result<Deployment, String> {
    let (master, sentinels) = url
        .split_once(',')
        .filter(|(master, _)| !master.trim().is_empty())
        .ok_or(NO_SENTINELS)?;
    let master = master.trim().to_owned();
    let targets = targets(sentinels)?;
    let addresses = addresses(&targets);
    let first = merge_targets(targets)?;
    Ok(Deployment {
        shown: format!("{master} by sentinels {}", shown(&addresses)),
        servers: Servers::Sentinel {
            master,
            sentinels: addresses,
            credentials: sentinel_login.or(first.login).credentials(),
        },
        // As in radix, the login of the sentinels is not used at the servers that they name.
        first: RedisTarget {
            login: Login::default(),
            ..first
        },
    })
}

/// Parses a list of cluster nodes or sentinels, which are reached only over TCP.
fn targets(urls: &str) -> Result<Vec<RedisTarget>, String> {
    urls.split(',')
        .map(|url| target(url.trim(), "tcp"))
        .collect()
}

fn addresses(targets: &[RedisTarget]) -> Vec<Address> {
    targets
        .iter()
        .map(|target| target.address.clone())
        .collect()
}

fn shown(addresses: &[Address]) -> String {
    addresses
        .iter()
        .map(|address| mask_urls(&address.to_string()))
        .collect::<Vec<_>>()
        .join(",")
}

/// Merges the URLs of several servers. The user, the password and TLS of one apply to all.
fn merge_targets(targets: Vec<RedisTarget>) -> Result<RedisTarget, String> {
    if targets.iter().any(|target| target.database != 0) {
        return Err(
            "servers of a cluster, and sentinels, have no other database than 0".to_owned(),
        );
    }
    let merge = |one: RedisTarget, other: RedisTarget| {
        let is_same = other.login == Login::default()
            || one.login == Login::default()
            || one.login == other.login;
        is_same.then_some(RedisTarget {
            login: one.login.or(other.login),
            tls: one.tls || other.tls,
            has_unknown_fields: one.has_unknown_fields || other.has_unknown_fields,
            ..one
        })
    };
    let mut targets = targets.into_iter();
    let first = targets.next().ok_or_else(|| NO_SENTINELS.to_owned())?;
    targets.try_fold(first, merge).ok_or_else(|| {
        "its addresses have different users or passwords; one login holds for all".to_owned()
    })
}
