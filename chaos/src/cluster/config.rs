//! The config file of one replica, and what it reads and writes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Own, Setup};
use crate::order::{COUNTED_STATUS, IDLE_MS, LAG_MS, PIPELINE, WINDOW_MS};

/// Where orders come from and rows go to.
#[derive(Clone, Debug)]
pub enum Medium {
    /// NDJSON files, a lane each, of which each replica reads a copy of its own: the folder `input` in that which it runs
    /// in. Rows are served by the replicas themselves.
    Files {
        /// The folder with what all copies should hold.
        dir: PathBuf,
    },
    /// Topics of a Kafka broker.
    Kafka {
        /// `host:port`, comma-separated.
        brokers: String,
        /// The topic with the orders.
        input: String,
        /// The topic for the rows.
        output: String,
        /// The topic for the published frontier.
        frontier: String,
        /// The replicas' common transactional id.
        transactional_id: String,
    },
}

/// A TOML string: the escapes of JSON that can occur in paths and names are TOML's too.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn path(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

fn address_map(addresses: &BTreeMap<u16, String>) -> String {
    let entries = addresses
        .iter()
        .map(|(number, address)| format!("{number} = \"{address}\""));
    entries.collect::<Vec<_>>().join(", ")
}

/// The whole text of `unisono-<number>.toml`.
pub(super) fn node_config(
    setup: &Setup,
    number: u16,
    http: &BTreeMap<u16, String>,
    raft: &BTreeMap<u16, String>,
    own: &Own,
) -> String {
    let data_dir = setup.dir.join(format!("data-{number}"));
    // Each replica runs in a folder of its own.
    let data_dir = path(&std::path::absolute(&data_dir).unwrap_or(data_dir));
    let own_http = &http[&number];
    let (peers, http_peers) = (address_map(raft), address_map(http));
    let checkpoint = setup.checkpoint_interval.as_ref();
    let checkpoint = checkpoint.map_or_else(String::new, |interval| {
        format!("checkpoint_interval = {}\n", quoted(interval))
    });
    let streams = match &own.brokers {
        Some((all, own)) => setup.streams.replace(&quoted(all), &quoted(own)),
        None => setup.streams.clone(),
    };
    format!(
        r#"data_dir = {data_dir}

[node]
id = {number}
http = "{own_http}"

[cluster]
peers = {{ {peers} }}
http_peers = {{ {http_peers} }}
{checkpoint}
{streams}"#
    )
}

/// The demo's source, sink and pipeline.
pub(super) fn orders(medium: &Medium) -> String {
    let (source, sink_name) = source_and_sink(medium);
    format!(
        r#"{source}
[[pipeline]]
name = "{PIPELINE}"
sources = ["orders"]
sink = "{sink_name}"
time = {{ field = "created_at", format = "ms" }}
where = "status = '{COUNTED_STATUS}'"
group_by = ["city"]
window = {{ size = "{WINDOW_MS}ms" }}
close = {{ lag = "{LAG_MS}ms", idle = "{IDLE_MS}ms" }}

[pipeline.values]
orders = "count()"
revenue = "sum(amount)"
average = "avg(amount)"
lowest = "min(amount)"
highest = "max(amount)"
"#
    )
}

fn source_and_sink(medium: &Medium) -> (String, &'static str) {
    match medium {
        Medium::Files { .. } => {
            let files = "files = { dir = \"/proc/self/cwd/input\", pattern = \"*.ndjson\" }";
            (
                format!("[[source]]\nname = \"orders\"\n{files}\n"),
                "builtin",
            )
        }
        Medium::Kafka {
            brokers,
            input,
            output,
            frontier,
            transactional_id,
        } => {
            let [brokers, input, output] = [brokers, input, output].map(|text| quoted(text));
            let [frontier, id] = [frontier, transactional_id].map(|text| quoted(text));
            let source = format!(
                "[[source]]\nname = \"orders\"\nkafka = {{ brokers = {brokers}, \
                 topic = {input}, start = \"earliest\" }}\n\n[[sink]]\nname = \"out\"\n\
                 kafka = {{ brokers = {brokers}, topic = {output}, frontier_topic = {frontier}, \
                 transactional_id = {id} }}\n"
            );
            (source, "out")
        }
    }
}
