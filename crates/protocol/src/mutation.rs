//! Deliberate defects that the simulator's checkers must catch.

use seriatim_model::limits::Limits;

/// A defect of the protocol. The simulator runs each one, and the right checker must object.
/// Servers never set one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutation {
    /// `stable` advances when shards hold a batch, before followers confirm it.
    StableEarly,
    /// A view change loses the duplicate filter.
    FilterForgotten,
    /// A member adds its own duplicate filter to the staged one.
    FilterUnion,
    /// A view is recovered from a replica that continues after its seal.
    SealSkipped,
    /// A replica answers a seal before the seal is durable.
    SealNotDurable,
    /// A sealed replica obeys its old leader's truncation.
    SealedTruncates,
    /// The flush starts without fencing the shards.
    FenceSkipped,
    /// Staging destroys the sealed state, although the view may stay unregistered.
    StageDestroys,
    /// Followers truncate out of order.
    TruncatesUnordered,
    /// The registered `first` is the end of the flush, not its start.
    FirstAfterFlush,
    /// The flush reverses the order of arrival.
    FlushReversed,
    /// A restarted replica ignores that it lost its memory.
    AmnesiaAcknowledges,
    /// Replicas confirm before their journal is synced.
    ConfirmBeforeSync,
    /// An append completes with acknowledgements from different views.
    MixedViews,
    /// One replica's acknowledgement completes an append.
    OneAcknowledgement,
    /// A client takes the leader's count for the tail.
    TailFromLeader,
    /// A client takes the smallest of the replicas' counts for the tail.
    TailIsMinimum,
    /// A client takes the largest count for the tail, regardless of the positions that replicas
    /// know.
    TailIsMaximum,
    /// Replicas admit records with gaps in their session's numbers.
    GapsAdmitted,
    /// A shard serves records that are bound but not stable.
    ReadsUnstable,
    /// A fence drops bindings from the stable bound on.
    FenceDrops,
    /// The register compares only claimed numbers, not versions.
    ClaimUnchecked,
    /// A flush makes its positions stable before its view is registered.
    StableBeforeRegister,
    /// A controller retries under the same number with another replica.
    OneNumberTwice,
    /// A follower, unlike the leader, acknowledges before its journal is synced.
    FollowerBeforeSync,
    /// A shard's own flush fills vacant positions without asking clients that may write there.
    VacantUnasked,
    /// Sessions that were forgotten for lack of room count as new.
    ForgottenWithoutFloor,
    /// A view change loses the ends of sessions.
    SessionEndLost,
    /// A session ends at its leader's next number, regardless of the followers.
    EndedAtLeadersNumber,
    /// A client accepts a session's end from one replica that has forgotten the session.
    EndedByOne,
    /// A shard replica answers `Bound` before its backups hold the batch.
    BackupsSkipped,
    /// A fenced backup obeys the primary of an older view.
    DeposedPrimaryObeyed,
    /// A shard replica with missing records counts as complete.
    MissingCounted,
    /// A shard replica answers reads of missing records.
    MissingServed,
    /// A shard replica asks only its view's members for missing or damaged records.
    FormerNotAsked,
    /// A returning shard replica does not ask for the trim point.
    TrimForgotten,
    /// A shard replica forgets where its shard joined, so a restarted store must know all owners
    /// from position 0.
    JoinForgotten,
    /// A trimming client takes one replica's confirmation for all.
    TrimHalfConfirmed,
    /// An operator's question about the loss is sent as acceptance.
    RecoveryAcceptsUnasked,
    /// The reported stable bound covers only the shards that answered.
    StatusOfThoseHeard,
    /// Of several nodes' entries of a log, a client receives the oldest.
    OldestKnown,
    /// A read ends at an empty position, although records follow.
    EmptyEndsRead,
    /// In Corfu, which gives positions first, a view may write trimmed positions again.
    TrimmedFlushed,
    /// A view change loses which appends became no-ops.
    VoidsForgotten,
    /// A shard replica takes and acknowledges the record of a voided append.
    VoidAcknowledged,
    /// A shard replica drops records that have no position, but may still get one.
    ScrubbedEarly,
    /// Shard replicas use their nodes' `session_idle_positions` instead of the log's.
    OwnIdlePositions,
    /// A shard replica drops records that have had no position for long, without asking.
    ScrubbedByTime,
    /// A primary acknowledges a no-op before its backups hold it.
    VoidNotReplicated,
    /// A joining shard takes turns from position 0 on.
    PlacedAnew,
    /// A leaving shard leaves before its records are trimmed.
    LeftUntrimmed,
    /// A client appends a record again although its first id may still be bound.
    AgainInDoubt,
    /// A shard reports owners of positions that are not final, and readers keep them.
    MapBeyondStable,
    /// A view change loses the successors of ended sessions.
    SuccessorForgotten,
    /// A client that resumes a session appends before the earlier run's records are final.
    ResumedUncompleted,
    /// The ordering layer orders remaining records of an ended session.
    EndedOrdered,
    /// A client learns a session's end before the ending cut is committed.
    EndUncommitted,
    /// A view change loses the ended sessions in the register.
    EndsForgotten,
    /// A new view's sequencer gives positions to sessions that ended before.
    FencesForgotten,
    /// A shard replica reports the records of an ended session before it has all of them.
    SoughtEarly,
    /// A client resumes a session before the register has its end.
    EndUnregistered,
    /// A shard replica reports a no-op to its client before all replicas hold it.
    RefusedEarly,
    /// A sequencer starts a view at the start of its flush, not the end.
    SequencedTooLow,
    /// The head of a chain overwrites records with junk.
    JunkOverValue,
    /// A fenced replica accepts writes of the former view's clients.
    WrittenWhileFenced,
    /// A cut counts one replica of a shard, regardless of the others.
    CutUnreplicated,
    /// Padding (empty positions) counts only on replicas that report it, and backups drop it.
    PaddingUncounted,
    /// Shards receive a cut before all members of the ordering layer hold it.
    CutUncommitted,
    /// A shard gives a cut's records the positions after its last record, regardless of the cut.
    PositionsByArrival,
    /// A view change loses the cuts of the chosen member.
    CutsLost,
    /// A fenced replica discards the part of its local log that no cut covers.
    RestDropped,
    /// A replica judges by messages since its start, not by durable state, whether it holds the
    /// closing cut's records.
    ClosedNotDurable,
    /// The next view's duplicate filter lacks the records of the closing cut.
    ClosedUnlisted,
    /// A shard without turns in a window predicts positions.
    LenderPredicts,
    /// The closing cut ends at the last cut in which all shards met their turns.
    ClosedAtSlowest,
    /// The closing cut gives positions of unmet turns to later records.
    ClosedUnpadded,
    /// A restarted replica joins the closing cut with an empty local log.
    RestartedRest,
    /// A shard and the ordering layer treat retransmitted records as new.
    SubmittedTwice,
    /// A connection that carries only heartbeats counts as healthy.
    MutenessUnnoticed,
    /// A restarted register announces deletions only to nodes that have joined since.
    JoinedForgotten,
    /// A node whose disk was set back counts on everything that it acknowledged.
    SetBackUnnoticed,
    /// Only heartbeats of a node count as signs of life, not its other messages.
    WorkIgnored,
    /// Heartbeats wait behind all other work of a node.
    HeartbeatsBehindRecords,
    /// A node accepts clients' bytes without limit.
    NeverBusy,
    /// A node whose disk is behind delays every log, regardless of their shares.
    SharesIgnored,
    /// A client retransmits to a shard replica outside the view also records whose ids were not
    /// sent.
    IdsSentToFenced,
    /// A Scalog session changes shards after each stripe, regardless of its load.
    HopsEachStripe,
    /// Positions are filled with junk after a fixed time, even if their client still writes.
    FilledByTheClock,
    /// A long attempt at a view is abandoned despite progress.
    AttemptByTheClock,
    /// Unanswered batches are all retransmitted after a constant time.
    ResentWithoutBackoff,
    /// No node replaces a permanently lost sequencing replica.
    SequencersUnreplaced,
    /// A view excludes replicas of drained nodes before others hold their records.
    DrainedUncopied,
    /// An excluded shard replica keeps records that the view's replicas trimmed.
    OutsideUntrimmed,
    /// A client retransmits everything after a gap for each message beyond it.
    WentBackForEach,
    /// A sequencing replica journals retransmitted entries again.
    JournaledAgain,
    /// A node journals shard commands in full, although the record store has parts of them.
    AttemptJournaledInFull,
    /// A record store encodes all its state at each step to learn the length.
    MeasuredByEncoding,
    /// A record store keeps its current segment even if it is wholly trimmed.
    NewestKept,
    /// Replicas serve records before the last replica of the chain has them.
    ReadFromHead,
    /// Controllers admit nodes with full disks to views.
    FullDiskIgnored,
    /// Records use the space that is reserved for work that frees space.
    ReserveSpent,
    /// A client that must wait never asks for a newer view.
    PutOffForEver,
    /// A new replica waits for a damaged record as long as for missing ones.
    RepairWaits,
    /// A stand-in for an absent member copies the shard at once.
    StandInCopies,
    /// Controllers replace absent members at once.
    ReplacedAtOnce,
    /// A replaced replica is dismissed while another reads from it.
    NeededRemoved,
    /// A node checkpoints a role's snapshot some time after taking it.
    SnapshotAhead,
    /// The age of records follows the raw wall clock.
    AgedByWall,
    /// Limits trim positions that are not final.
    RetainedUnstable,
    /// Limits are never applied.
    NeverRetained,
    /// Replicas forget the marks of positions and times.
    MarksForgotten,
    /// The wall-clock time in a mark (a position with its time) is too early.
    MarkedEarlier,
    /// A byte limit trims everything final.
    RetainedTooLittle,
    /// A byte limit keeps only three quarters of its bytes.
    RetainedThreeQuarters,
    /// Limits trim above a pin.
    PinIgnored,
    /// A subscription delivers a record before it knows the earlier positions.
    HandedOverEarly,
    /// A replica reports one position too many as empty.
    EmptyTooFar,
    /// Records that a cut skips count as ordered.
    PassedOverOrdered,
    /// A replica reports all its predictions as final.
    HoldsUncommitted,
    /// A primary predicts records that it alone holds.
    PredictedUnreplicated,
    /// A primary predicts beyond its leased windows, as if quotas never changed.
    LeaseIgnored,
    /// Shards receive a window before all members of the ordering layer hold it.
    WindowEarly,
    /// A window's cut does not wait for an idle shard.
    CutUnmet,
    /// A record that a window's cut skips yields its position to later ones.
    PassedOverShifts,
    /// The next window's quotas apply as soon as they are decided.
    QuotaAtOnce,
    /// A primary acknowledges records when it predicts them.
    AcknowledgedOnPrediction,
    /// A reader applies the bound of one view's confirmed predictions to those of any view.
    HoldsAnyView,
    /// A reader keeps the former view's predictions where the next view decides.
    OldPredictionsKept,
    /// A reader forgets that it skipped a position without a predicted record.
    EmptyNotGiven,
    /// If a prediction is wrong, a reader fails all unconfirmed predictions, not only later ones.
    FailTooFar,
    /// A reader fails predictions that a new view wrote again, even if the records are equal.
    FlushedIsVoid,
    /// A replica of a retired shard serves unordered records at empty positions.
    RetiredKeeps,
    /// A copy of a retired shard does not get missing records from others.
    RetiredUncopied,
    /// Views do not pass on the cuts that retired shards miss.
    OwedForgotten,
    /// A subscription to predictions receives no bound if no record lies below.
    EmptyNotTold,
    /// A retired shard is reported as lost although a replica has everything.
    GivenUpWhole,
    /// The history omits the abandoned positions of a retired shard.
    GivenUpUntold,
    /// The history omits that a view began after an accepted loss.
    ReassignedUnmarked,
    /// A reader ignores that positions of its records are reassigned.
    ReassignedIgnored,
    /// A reader that skips a shard's gap ignores other shards' records before its end.
    LostBeyondOthers,
    /// A reader of chosen shards skips positions that an unknown view decides.
    UnknownViewSkipped,
    /// A replica does not name the deciding view of delivered records.
    DecidingViewUntold,
    /// A reader of chosen shards does not ask the register whether an unknown one of them has
    /// joined the log.
    JoiningNotAsked,
    /// A subscription receives a read result from an earlier subscription, or from before a reset.
    StaleReadTaken,
    /// A player hears the recovery stream of an earlier session of a target.
    NoTerm,
    /// A player sends messages of the main stream while a target still recovers.
    NormalWhileFetching,
    /// A player keeps a target's queue beyond the session.
    QueueKept,
    /// A player recovers positions that the target also receives from the main stream.
    JoinTooLate,
    /// A recovery stream ends one position too early.
    RecoveryEndsEarly,
    /// A recovery counts as complete while one message is queued.
    CaughtUpEarly,
    /// A player does not note that a full queue missed messages.
    OverflowForgotten,
    /// A player moves a quiet target's bound over queued messages.
    AdvanceOverQueued,
    /// A player starts at the highest bound of its targets.
    StartAtHighest,
    /// A player trusts an acknowledgement more than the bound of a restored target.
    AppliedRemembered,
    /// A player passes over a rejected entry without moving the target's bound.
    SkipUnrecorded,
    /// Positions that cannot be read displace the messages queued before them.
    GapJumped,
    /// A target applies a batch that does not start at its bound.
    AfterUnchecked,
    /// A target applies a batch of a lower epoch.
    OldEpochServed,
    /// A target acknowledges a batch before it has applied it.
    AckBeforeEffect,
    /// A target stores the bound before the effects, in another transaction.
    BoundBeforeEffect,
    /// A changed mapping also applies to earlier entries.
    RuleOfToday,
    /// A recovery keeps its stream while it has no room and others wait.
    SlotKept,
    /// A player's queues have no limit.
    QueueUnbounded,
}

/// The configuration of a node's machines.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Limits such as sizes and waits.
    pub limits: Limits,
    /// A deliberate defect; `None` outside the simulator.
    pub mutation: Option<Mutation>,
}

impl Options {
    /// Whether this defect is active.
    #[must_use]
    pub fn mutates(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }
}
