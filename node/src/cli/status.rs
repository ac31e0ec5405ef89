//! `unisono status`: the cluster as one of its nodes sees it.

use serde_json::json;
use unisono_api::client::Client;
use unisono_api::dto::{ClusterInfo, FeedState, PipelineInfo, Readiness, Role};

use super::error::CliError;
use super::remote::{DEFAULT_URL, aligned, node_error, print, runtime};

/// Arguments of `unisono status`.
#[derive(Clone, Debug, clap::Args)]
pub struct StatusArgs {
    /// The HTTP address of any node.
    #[arg(long, default_value = DEFAULT_URL)]
    pub url: String,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// Asks a node for the state of the cluster and prints it.
///
/// # Errors
/// Exit code 64 for an address that cannot be one, 1 where the node does not answer.
pub fn status(args: &StatusArgs) -> Result<(), CliError> {
    let client = Client::new(&args.url).map_err(node_error)?;
    let answers = runtime()?.block_on(async {
        Ok((
            client.cluster().await?,
            client.pipelines().await?,
            client.readiness().await?,
        ))
    });
    let (cluster, pipelines, readiness) = answers.map_err(node_error)?;
    let text = if args.json {
        let all = json!({ "cluster": cluster, "pipelines": pipelines, "readiness": readiness });
        format!("{all}\n")
    } else {
        render(&cluster, &pipelines, &readiness)
    };
    print(text.as_bytes())
}

fn render(cluster: &ClusterInfo, pipelines: &[PipelineInfo], readiness: &Readiness) -> String {
    let ready = if readiness.ready {
        "ready"
    } else {
        "not ready"
    };
    let leader = cluster
        .leader
        .map_or("no leader".to_owned(), |leader| format!("leader {leader}"));
    let mut text = format!(
        "node {}: {ready}, term {}, {leader}, tick {}, agreed time {}\n",
        cluster.node,
        cluster.term,
        or_dash(cluster.tick.as_ref()),
        or_dash(cluster.agreed_time.as_ref()),
    );
    for reason in &readiness.reasons {
        text.push_str(&format!("  not ready: {reason}\n"));
    }
    for notice in &readiness.notices {
        text.push_str(&format!("  {notice}\n"));
    }
    for feed in &cluster.feeds {
        let (word, error) = match &feed.state {
            FeedState::Running => continue,
            FeedState::Stopped { error } => ("stopped", error),
            FeedState::Held { error } => ("held", error),
        };
        let mut reasons = readiness.reasons.iter();
        if !reasons.any(|reason| reason.contains(error)) {
            text.push_str(&format!("  feed {} {word}: {error}\n", feed.name));
        }
    }
    text.push_str(&agreement(cluster));
    for table in [
        nodes(cluster),
        table_of_pipelines(pipelines),
        lanes(cluster),
    ] {
        // A table without rows says nothing.
        if table.len() > 1 {
            text.push('\n');
            text.push_str(&aligned(&table));
        }
    }
    for pipeline in pipelines {
        for note in &pipeline.notes {
            text.push_str(&format!("\npipeline {}: {note}\n", pipeline.name));
        }
    }
    text
}

/// What is agreed, where that is not what everybody's file says, and what else an operator should know.
fn agreement(cluster: &ClusterInfo) -> String {
    let mut text = String::new();
    if let Some(id) = &cluster.cluster {
        text.push_str(&format!("cluster {id}\n"));
    }
    let members = &cluster.members;
    if members.joint {
        text.push_str("  a change of voters is half done; the leader completes it\n");
    }
    for voter in &members.voters {
        let known = cluster.nodes.iter().find(|node| node.id == *voter);
        if known.is_some_and(|node| node.address.is_empty())
            && cluster.nodes.iter().any(|node| !node.address.is_empty())
        {
            text.push_str(&format!(
                "  node {voter} votes, and this node's file does not name it: if it is gone for good, unisono members remove {voter}\n"
            ));
        }
    }
    for node in &cluster.nodes {
        if let Some(reason) = &node.refuses {
            text.push_str(&format!("  node {} refuses this node: {reason}\n", node.id));
        }
    }
    if let Some(last) = &cluster.peers_port.last_refused {
        let refused: u64 = cluster.peers_port.refused.values().sum();
        text.push_str(&format!(
            "  {refused} refused at the peers' port, the last one {} s ago from {}: {}\n",
            last.seconds_ago, last.from, last.message
        ));
    }
    for sink in &cluster.sinks {
        if let Some(trouble) = &sink.trouble {
            text.push_str(&format!(
                "  sink {}: nothing is published from here: {trouble}\n",
                sink.name
            ));
        }
        if let Some(notice) = &sink.notice {
            text.push_str(&format!("  sink {}: {notice}\n", sink.name));
        }
        for refused in &sink.refused {
            let last = refused.last.last().copied().unwrap_or_default();
            text.push_str(&format!(
                "  sink {}: refused {} {} of {} for their size, which are not in it; the last is {} with {} bytes\n",
                sink.name, refused.count, refused.kind, refused.pipeline, last.seq, last.bytes
            ));
        }
    }
    for drift in &cluster.drifts {
        text.push_str(&format!(
            "  file of node {}: {}\n",
            drift.node, drift.message
        ));
    }
    text.push_str(&decisions(cluster));
    for (name, reason) in &cluster.waiting {
        text.push_str(&format!("  {name} is not created yet: {reason}\n"));
    }
    for name in &cluster.removed {
        text.push_str(&format!("  pipeline {name} was removed by a command\n"));
    }
    text
}

/// What operators decided of feeds.
fn decisions(cluster: &ClusterInfo) -> String {
    let mut text = String::new();
    for feed in &cluster.feeds {
        for ended in &feed.ended {
            text.push_str(&format!(
                "  feed {}: ticks of entries {} to {} were ended by a command\n",
                feed.name, ended.from, ended.at
            ));
            for skipped in &ended.skipped {
                text.push_str(&format!(
                    "    lane {}: offsets {} to {} were never taken in\n",
                    skipped.lane, skipped.from, skipped.to
                ));
            }
        }
    }
    text
}

fn nodes(cluster: &ClusterInfo) -> Vec<Vec<String>> {
    let mut table = vec![header(&["NODE", "ROLE", "VOTES", "LAG", "ADDRESS"])];
    for node in &cluster.nodes {
        let votes = if node.voter { "yes" } else { "no" };
        table.push(vec![
            node.id.to_string(),
            role_name(node.role).to_owned(),
            votes.to_owned(),
            or_dash(node.lag.as_ref()),
            node.address.clone(),
        ]);
    }
    table
}

fn table_of_pipelines(pipelines: &[PipelineInfo]) -> Vec<Vec<String>> {
    let names = [
        "PIPELINE",
        "COMPUTED",
        "PUBLISHED",
        "OPEN",
        "WATERMARK",
        "DIGEST",
    ];
    let mut table = vec![header(&names)];
    for pipeline in pipelines {
        table.push(vec![
            pipeline.name.clone(),
            pipeline.next_seq.to_string(),
            match pipeline.paused {
                true => format!("{} (paused)", or_dash(pipeline.published.as_ref())),
                false => or_dash(pipeline.published.as_ref()),
            },
            pipeline.open_windows.to_string(),
            or_dash(pipeline.watermark.as_ref()),
            pipeline.digest.chars().take(12).collect(),
        ]);
    }
    table
}

fn lanes(cluster: &ClusterInfo) -> Vec<Vec<String>> {
    let mut table = vec![header(&["SOURCE", "LANE", "POSITION", "LAG", "WATERMARK"])];
    for lane in &cluster.lanes {
        table.push(vec![
            lane.source.clone(),
            lane.lane.clone(),
            lane.position.to_string(),
            or_dash(lane.lag.as_ref()),
            or_dash(lane.watermark.as_ref()),
        ]);
    }
    // Where no lane has one to show, the column says nothing.
    if cluster.lanes.iter().all(|lane| lane.watermark.is_none()) {
        table.iter_mut().for_each(|row| row.truncate(4));
    }
    table
}

fn header(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Leader => "leader",
        Role::Follower => "follower",
        Role::Candidate => "candidate",
        Role::Learner => "learner",
        Role::Witness => "witness",
        Role::Unknown => "unknown",
    }
}

fn or_dash(value: Option<&impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use unisono_api::dto::{FeedInfo, LaneInfo, NodeInfo};

    use super::*;

    #[test]
    fn what_is_not_known_yet_is_a_dash_and_a_stopped_feed_says_why() {
        let node = NodeInfo {
            id: 1,
            role: Role::Leader,
            voter: true,
            ..NodeInfo::default()
        };
        let other = NodeInfo {
            id: 12,
            address: "b:8102".into(),
            lag: Some(7),
            ..node.clone()
        };
        let error = "offsets 5 to 9 are gone".to_owned();
        let cluster = ClusterInfo {
            node: 1,
            term: 7,
            leader: Some(1),
            nodes: vec![
                node,
                NodeInfo {
                    role: Role::Witness,
                    ..other
                },
            ],
            feeds: vec![FeedInfo {
                name: "f".into(),
                state: FeedState::Stopped { error },
                dispute: None,
                ended: Vec::new(),
            }],
            ..ClusterInfo::default()
        };
        let pipeline = PipelineInfo {
            name: "dns".into(),
            next_seq: 17,
            digest: "0123456789abcdef".into(),
            ..PipelineInfo::default()
        };
        let reasons = vec!["behind by 9 ticks".to_owned()];
        let text = render(
            &cluster,
            &[pipeline],
            &Readiness {
                ready: false,
                reasons,
                notices: vec!["source q, lane 0: a transaction".to_owned()],
            },
        );
        let expected = "\
node 1: not ready, term 7, leader 1, tick -, agreed time -
  not ready: behind by 9 ticks
  source q, lane 0: a transaction
  feed f stopped: offsets 5 to 9 are gone

NODE  ROLE     VOTES  LAG  ADDRESS
1     leader   yes    -
12    witness  yes    7    b:8102

PIPELINE  COMPUTED  PUBLISHED  OPEN  WATERMARK  DIGEST
dns       17        -          0     -          0123456789ab
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_lane_whose_end_is_not_known_has_no_lag() {
        let lanes = vec![LaneInfo {
            source: "q".into(),
            lane: "0".into(),
            ..LaneInfo::default()
        }];
        let cluster = ClusterInfo {
            node: 1,
            term: 7,
            lanes,
            ..ClusterInfo::default()
        };
        let text = render(
            &cluster,
            &[],
            &Readiness {
                ready: true,
                ..Readiness::default()
            },
        );
        assert!(text.contains("node 1: ready, term 7, no leader,"), "{text}");
        assert!(text.ends_with("SOURCE  LANE  POSITION  LAG\nq       0     0         -\n"));
    }
}
