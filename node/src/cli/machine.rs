//! What a config says of the machine that it is checked on: directories, files, hosts.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::error::CliError;
use super::remote::runtime;
use crate::config::{ConfigProblem, NodeConfig, Places, SinkKind, SourceKind};

/// Name servers that answer nothing in that time say nothing of a host.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// What a broker listens on where no port is written.
const KAFKA_PORT: u16 = 9092;

/// What was found on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// The node would not work here.
    pub problems: Vec<ConfigProblem>,
    /// It may be so for now, or on this machine alone: a host without an address.
    pub warnings: Vec<ConfigProblem>,
}

/// Looks whether the directories and files that a config names are there, and whether its hosts have addresses. Asks
/// the system's resolver, for 3 seconds at most; connects to nothing.
///
/// # Errors
/// The system gives no threads to ask with.
pub fn look_around(config: &NodeConfig) -> Result<Looked, CliError> {
    let file = config.file.display().to_string();
    let mut looked = Looked::default();
    for (index, source) in config.sources.iter().enumerate() {
        if let SourceKind::Files(files) = &source.kind
            && let Some(fault) = fault_of_directory(&files.path)
        {
            let key = format!("source[{index}].files.dir");
            looked.problems.push(ConfigProblem::new(&file, &key, fault));
        }
    }
    if let Some(secret) = &config.cluster.secret_file
        && let Err(error) = std::fs::File::open(secret)
    {
        let message = format!("cannot read {}: {error}", secret.display());
        looked
            .problems
            .push(ConfigProblem::new(&file, "cluster.secret_file", message));
    }
    if config.data_dir.exists() && !config.data_dir.is_dir() {
        let message = format!("{} is no directory", config.data_dir.display());
        looked
            .problems
            .push(ConfigProblem::new(&file, "data_dir", message));
    }
    let hosts = hosts_of(config);
    let unknown = unresolved(hosts.iter().map(|(_, host)| host.clone()).collect())?;
    for (key, host) in hosts.iter().filter(|(_, host)| unknown.contains(host)) {
        let message = format!("host {host} has no address here; is it spelled right?");
        looked
            .warnings
            .push(ConfigProblem::new(&file, key, message));
    }
    if let Ok(text) = std::fs::read_to_string(&config.file) {
        let places = Places::of(&text);
        let found = looked.problems.iter_mut().chain(&mut looked.warnings);
        found.for_each(|problem| places.locate(problem));
    }
    Ok(looked)
}

fn fault_of_directory(path: &Path) -> Option<String> {
    let shown = path.display();
    match std::fs::read_dir(path) {
        Ok(_) => None,
        Err(_) if path.is_file() => Some(format!(
            "{shown} is a file; name the directory that it lies in, and the file as pattern"
        )),
        Err(error) => Some(format!("cannot list {shown}: {error}")),
    }
}

/// All hosts with the keys that name them; addresses are none.
fn hosts_of(config: &NodeConfig) -> Vec<(String, String)> {
    let mut named = Vec::new();
    for (member, address) in &config.cluster.peers {
        named.push((format!("cluster.peers[{member}]"), address.clone()));
    }
    named.push(("node.http".to_owned(), config.node.http.clone()));
    for (index, source) in config.sources.iter().enumerate() {
        if let SourceKind::Kafka(kafka) = &source.kind {
            named.push((
                format!("source[{index}].kafka.brokers"),
                kafka.brokers.clone(),
            ));
        }
    }
    for (index, sink) in config.sinks.iter().enumerate() {
        let SinkKind::Kafka(kafka) = &sink.kind;
        named.push((
            format!("sink[{index}].kafka.brokers"),
            kafka.brokers.clone(),
        ));
    }
    let mut hosts = Vec::new();
    for (key, addresses) in named {
        for address in addresses.split(',').map(str::trim) {
            // As `SSL://host:9092`, which librdkafka takes too.
            let address = address.rsplit("://").next().unwrap_or(address);
            let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            if !bare.is_empty() && bare.parse::<std::net::IpAddr>().is_err() {
                hosts.push((key.clone(), bare.to_owned()));
            }
        }
    }
    hosts
}

/// Those of the hosts of which the resolver says that it knows nothing.
fn unresolved(hosts: BTreeSet<String>) -> Result<BTreeSet<String>, CliError> {
    let runtime = runtime()?;
    let unknown = runtime.block_on(async {
        let mut asked = tokio::task::JoinSet::new();
        for host in hosts {
            asked.spawn(async move {
                let answer = tokio::net::lookup_host((host.clone(), KAFKA_PORT));
                let answer = tokio::time::timeout(ANSWER_WITHIN, answer).await;
                let fails = matches!(answer, Ok(Err(_)));
                fails.then_some(host)
            });
        }
        asked.join_all().await.into_iter().flatten().collect()
    });
    // A resolver that hangs cannot be told to stop; it ends with the process.
    runtime.shutdown_background();
    Ok(unknown)
}
