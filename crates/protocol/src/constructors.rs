//! Selects the parts that depend on a log's ordering: the data path of a shard replica, and the
//! handover.

use seriatim_model::storage::{HardState, ShardRecovery};
use seriatim_model::{LogConfig, Member, Order, Position, ShardId, TimeIndex, ViewHistory, ViewNumber};

use crate::control::Handover;
use crate::corfu::handover::Chains;
use crate::corfu::shard::Chain;
use crate::cuts::handover::Cuts;
use crate::cuts::shard::LocalPath;
use crate::erwin::handover::Unbound;
use crate::erwin::shard::{ById, Pushed};
use crate::mutation::Options;
use crate::shard::{Core, DataPath, Replica};

impl Replica {
    /// A replica without any records.
    #[must_use]
    pub fn new(me: Member, shard: ShardId, config: LogConfig, options: Options) -> Self {
        let memory = HardState {
            incarnation: me.incarnation,
            config,
            claim: ViewNumber::NONE,
            view: None,
            history: ViewHistory::default(),
        };
        let (stable, trim) = (Position::ZERO, Position::ZERO);
        let (memory, put, void, ends) = (Some(memory), vec![], vec![], vec![]);
        let times = TimeIndex::default();
        let recovery = ShardRecovery { memory, stable, trim, missing: None, put, void, ends, times };
        Self::recover(me, shard, recovery, options).expect("it has its memory")
    }

    /// Rebuilds a replica from its store. It serves reads below its stable bound and waits for a
    /// new view. If the store may have lost records, `me` names a new incarnation, and only the
    /// records below `stable` count.
    ///
    /// `None` if the store is empty.
    #[must_use]
    pub fn recover(
        me: Member,
        shard: ShardId,
        mut recovery: ShardRecovery,
        options: Options,
    ) -> Option<Self> {
        let (put, void) = (std::mem::take(&mut recovery.put), std::mem::take(&mut recovery.void));
        let core = Core::recover(me, shard, recovery, options)?;
        let path: Box<dyn DataPath> = match core.memory.config.order {
            Order::ErwinBb => Box::new(Pushed::default()),
            Order::ErwinSt => Box::new(ById::recover(put, void)),
            Order::Corfu => Box::new(Chain::default()),
            Order::Scalog | Order::Belfast => Box::new(LocalPath::recover(put, core.stable)),
        };
        Some(Self::of(core, path))
    }
}

impl dyn Handover {
    pub(crate) fn of(order: Order) -> &'static dyn Handover {
        match order {
            Order::ErwinBb | Order::ErwinSt => &Unbound,
            Order::Corfu => &Chains,
            Order::Scalog | Order::Belfast => &Cuts,
        }
    }
}
