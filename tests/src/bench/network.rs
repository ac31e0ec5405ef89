//! The network between replicas, and from each of them to the broker, of which one replica can be cut off.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::runtime::{Builder, Runtime};
use unisono_chaos::gate::{Gate, Place};
use unisono_chaos::ways::{Way, Ways};

/// Connections stay when it is cut, and nothing passes.
pub struct Network {
    // Before what they run on.
    ways: Ways,
    gates: Vec<Gate>,
    places: Vec<Place>,
    replicas: u16,
    _runtime: Runtime,
}

impl Network {
    /// Between as many replicas as there are places for gates, numbered from 1.
    ///
    /// # Errors
    /// No ports are left.
    pub fn build(places: &[Place]) -> Result<Self> {
        let replicas = u16::try_from(places.len())?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let ways = runtime.block_on(Ways::build(replicas, Duration::ZERO))?;
        let gates = places
            .iter()
            .map(|&place| runtime.block_on(Gate::build(place)))
            .collect::<Result<_>>()?;
        Ok(Self {
            ways,
            gates,
            places: places.to_vec(),
            replicas,
            _runtime: runtime,
        })
    }

    /// The replicas' addresses as one of them is to know them.
    ///
    /// # Errors
    /// One is no address.
    pub(super) fn peers_of(
        &self,
        node: u16,
        direct: &BTreeMap<u16, String>,
    ) -> Result<BTreeMap<u16, String>> {
        self.ways.seen_from(node, direct)
    }

    /// The broker's address as one replica is to know it.
    pub(super) fn broker_of(&self, node: u16) -> String {
        let place = &self.places[usize::from(node) - 1];
        format!("127.0.0.1:{}", place.port)
    }

    /// Nothing comes to a replica nor from it, but by HTTP.
    ///
    /// # Errors
    /// There is no such replica.
    pub fn cut_off(&self, node: u16) -> Result<()> {
        self.set(node, true);
        self.gate(node)?.shut();
        Ok(())
    }

    /// All passes again, first what waited.
    ///
    /// # Errors
    /// There is no such replica.
    pub fn mend(&self, node: u16) -> Result<()> {
        self.set(node, false);
        self.gate(node)?.open();
        Ok(())
    }

    fn gate(&self, node: u16) -> Result<&Gate> {
        let gate = self.gates.get(usize::from(node).wrapping_sub(1));
        gate.context("there is no such replica")
    }

    fn set(&self, node: u16, cut: bool) {
        let way = Way {
            cut,
            ..Way::default()
        };
        for other in (1..=self.replicas).filter(|&other| other != node) {
            self.ways.set(node, other, way);
            self.ways.set(other, node, way);
        }
    }
}
