//! Checks that macro steps lose nothing: they reach the same logs as small steps, with at least the
//! same promises.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use seriatim_model::RecordId;
use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::cluster::{Cluster, State, record};
use crate::macro_steps::MacroSteps;
use crate::rules::{Promises, Prospect, prospects};

type Sights = BTreeMap<Prospect, BTreeSet<Promises>>;

struct Watched<M> {
    model: M,
    /// Number of interchangeable records.
    records: u64,
    seen: Mutex<Sights>,
}

impl<M: Model<State = State>> Model for Watched<M> {
    type State = State;
    type Action = M::Action;

    fn init_states(&self) -> Vec<State> {
        self.model.init_states()
    }

    fn actions(&self, state: &State, actions: &mut Vec<M::Action>) {
        self.model.actions(state, actions);
    }

    fn next_state(&self, last: &State, action: M::Action) -> Option<State> {
        self.model.next_state(last, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("it is looked at", |watched: &Self, state| {
            watched.look(state);
            true
        })]
    }
}

impl<M> Watched<M> {
    fn look(&self, state: &State) {
        let (found, promises) = prospects(state);
        let ids: Vec<RecordId> = (0..self.records).map(record).collect();
        let other =
            |id: RecordId| ids.iter().position(|known| *known == id).map_or(id, |at| ids[ids.len() - 1 - at]);
        let renamed: Promises = (
            promises.0.iter().copied().map(other).collect(),
            promises.1.iter().map(|id| id.map(other)).collect(),
        );
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for prospect in found {
            seen.entry(prospect.clone().renamed(other)).or_default().insert(renamed.clone());
            seen.entry(prospect).or_default().insert(promises.clone());
        }
    }
}

fn sights<M>(model: M, cluster: Cluster) -> Sights
where
    M: Model<State = State> + Send + Sync + 'static,
    M::Action: Clone + PartialEq + Send + Sync,
{
    // Clients that begin together are interchangeable.
    let records = if cluster.staggered { 0 } else { cluster.records };
    let watched = Watched { model, records, seen: Mutex::default() };
    let checker = watched.checker().finish_when(HasDiscoveries::AnyFailures).threads(2).spawn_bfs().join();
    let seen = checker.model().seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.clone()
}

/// Fails if macro steps do not reach a log of small steps with at least the same promises.
pub(crate) fn compare(name: &str, cluster: Cluster) {
    let (steps, macro_steps) = (sights(cluster, cluster), sights(MacroSteps(cluster), cluster));
    let covers =
        |more: &Promises, less: &Promises| more.0.is_superset(&less.0) && more.1.starts_with(&less.1);
    for (prospect, promises) in &steps {
        for less in promises {
            let found =
                macro_steps.get(prospect).is_some_and(|all| all.iter().any(|more| covers(more, less)));
            assert!(found, "{name}: macro_steps do not lead to {prospect:?} with {less:?}");
        }
    }
    println!("{name}: {} prospects in small steps, {} in macro_steps", steps.len(), macro_steps.len());
}
