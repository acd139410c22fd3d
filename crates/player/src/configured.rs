//! From the configuration file to the settings of a player.

use std::time::Duration;

use seriatim_delivery::player::{Begin, Map, PlayerLimits, Route};

use crate::config::{self, Config, Kind, OnReject, TargetConfig};
use crate::targets::{AnyTarget, FileTarget, SqliteTarget};
use crate::{Settings, Start, TargetSettings};

impl Config {
    /// The settings of a player with this configuration. Connects to nothing.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let map = match &self.map {
            config::Map::Wal => Map::Wal,
            config::Map::Key => Map::Key,
            config::Map::Routes { routes, all } => {
                let route = |route: &config::RouteConfig| Route {
                    to: route.to.clone(),
                    filter: route.filter.clone(),
                };
                Map::Routes { routes: routes.iter().map(route).collect(), all: *all }
            }
        };
        let begin = match self.from {
            config::From::Start => Begin::Start,
            config::From::Tail => Begin::Tail,
            config::From::Position(position) => Begin::At(position),
        };
        let limits = PlayerLimits {
            memory: usize::try_from(self.queue_memory).unwrap_or(usize::MAX),
            apply_within: Duration::from_millis(self.apply_within_ms),
            ..PlayerLimits::default()
        };
        Settings {
            log: self.log.clone(),
            name: self.name.clone(),
            map,
            begin,
            targets: self.targets.iter().map(target).collect(),
            start: Start::default(),
            above: None,
            until_tail: false,
            dead_letter: self.dead_letter.clone(),
            limits,
        }
    }
}

fn target(config: &TargetConfig) -> TargetSettings {
    let id = &config.id;
    let target = match &config.kind {
        Kind::Sqlite { path, statements } => {
            AnyTarget::Sqlite(SqliteTarget::new(id, path.clone(), statements.clone()))
        }
        Kind::File { path, separator } => AnyTarget::File(FileTarget::new(id, path.clone(), separator)),
        Kind::Postgres { .. } | Kind::Grpc { .. } => unimplemented!(),
    };
    let dead_letters = config.on_reject == OnReject::DeadLetter;
    TargetSettings { id: id.clone(), target, dead_letters }
}
