//! The shards of Erwin logs: in erwin-bb the leader pushes records with their positions; in
//! erwin-st clients put the records, and the leader orders them by id.

mod by_id;
mod held_records;
mod message;

pub use message::Message;

pub(crate) use by_id::ById;

use seriatim_model::{Ticket, Time};

use crate::roles::RoleEffect;
use crate::shard::{Core, DataPath, Predicting};

type Out = Vec<RoleEffect>;

/// Data path for pushed records. Its only state is the pending predictions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pushed {
    predicting: Predicting,
}

impl DataPath for Pushed {
    fn boxed(&self) -> Box<dyn DataPath> {
        Box::new(self.clone())
    }

    fn predicting(&self) -> Option<&Predicting> {
        Some(&self.predicting)
    }

    fn predicting_mut(&mut self) -> Option<&mut Predicting> {
        Some(&mut self.predicting)
    }

    fn failed(&mut self, core: &mut Core, _: Time, ticket: Ticket, _: &mut Out) {
        self.predicting.failed(core, ticket);
    }

    fn entered(&mut self, core: &mut Core, _: Time, out: &mut Out) {
        self.predicting.stable_raised(core);
        core.predict(self, out);
    }

    fn stable_raised(&mut self, core: &mut Core, _: &mut Out) {
        self.predicting.stable_raised(core);
    }
}
