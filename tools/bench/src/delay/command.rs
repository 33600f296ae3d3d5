//! `tidegate-bench delay-proxy`: a fixed delay in front of any servers.

use std::net::{SocketAddr, TcpListener};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;

use crate::delay::{DelayProxy, proxy_accuracy};

/// Arguments of the subcommand.
#[derive(Args)]
pub(crate) struct ProxyArguments {
    /// Where to listen and which server is behind it: 127.0.0.1:7001=127.0.0.1:6379. Once for each
    /// server.
    #[arg(long = "link", required_unless_present = "accuracy")]
    links: Vec<ProxiedServer>,
    /// The delay of each direction: 1ms, 0.5ms.
    #[arg(long, default_value = "1ms", value_parser = crate::figures::duration)]
    one_way: Duration,
    /// Measure the proxy itself first; without links, only that.
    #[arg(long)]
    accuracy: bool,
}

#[derive(Clone)]
struct ProxiedServer {
    listen: SocketAddr,
    server: SocketAddr,
}

impl FromStr for ProxiedServer {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (listen, server) = text
            .split_once('=')
            .with_context(|| format!("'{text}' is not LISTEN=SERVER"))?;
        let read = |part: &str| {
            part.parse()
                .with_context(|| format!("'{part}' is not an IP address and a port"))
        };
        Ok(Self {
            listen: read(listen)?,
            server: read(server)?,
        })
    }
}

/// Serves until the process is terminated.
pub(crate) fn run(arguments: ProxyArguments) -> Result<()> {
    if arguments.accuracy {
        println!("{}", proxy_accuracy()?);
        if arguments.links.is_empty() {
            return Ok(());
        }
    }
    let mut links = Vec::new();
    for ProxiedServer { listen, server } in arguments.links {
        let listener =
            TcpListener::bind(listen).with_context(|| format!("could not listen on {listen}"))?;
        println!(
            "{} -> {server}, {:?} each way",
            listener.local_addr()?,
            arguments.one_way
        );
        links.push((listener, server));
    }
    DelayProxy::start_on(links, arguments.one_way)?.wait()
}
