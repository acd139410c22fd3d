//! From the configuration file to the settings of a player.

use std::time::Duration;

use seriatim_delivery::player::{Begin, Map, PlayerLimits, Route};

use crate::config::{self, Config, OnReject, TargetConfig};
use crate::targets::AnyTarget;
use crate::{Settings, Start, TargetSettings};

impl Config {
    /// The settings of a player with this configuration. Connects to nothing.
    ///
    /// # Errors
    /// If a target's address is malformed, or this build lacks targets of its kind.
    pub fn settings(&self) -> Result<Settings, String> {
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
        Ok(Settings {
            log: self.log.clone(),
            name: self.name.clone(),
            map,
            begin,
            targets: self.targets.iter().map(|config| target(config, &limits)).collect::<Result<_, _>>()?,
            start: Start::default(),
            above: None,
            until_tail: false,
            pin: self.pin,
            dead_letter: self.dead_letter.clone(),
            limits,
        })
    }
}

fn target(config: &TargetConfig, limits: &PlayerLimits) -> Result<TargetSettings, String> {
    Ok(TargetSettings {
        id: config.id.clone(),
        target: AnyTarget::new(config, limits.apply_within)?,
        dead_letters: config.on_reject == OnReject::DeadLetter,
    })
}
