//! Deliberate defects, to see the simulator's checkers catch each of them.

use seriatim_model::limits::Limits;

/// One way to get the protocol wrong. A checker that was never seen to fail proves nothing, so the
/// simulator runs each of these and demands that the right checker objects. A server never sets
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutation {
    /// `stable` advances when the shards hold a batch, before the followers confirmed it.
    StableEarly,
    /// The duplicate filter is lost in a view change.
    FilterForgotten,
    /// A member's own duplicate filter is kept beside the staged one.
    FilterUnion,
    /// A view is recovered from a replica that goes on after its answer to the seal.
    SealSkipped,
    /// A replica answers a seal before it is durable.
    SealNotDurable,
    /// A sealed replica still obeys its old leader's drops.
    SealedTruncates,
    /// The shards are not fenced before the flush.
    FenceSkipped,
    /// Staging destroys the sealed state although the view may never be registered.
    StageDestroys,
    /// Drops are taken out of order.
    TruncatesUnordered,
    /// The register's `first` is the end of the flush instead of its start.
    FirstAfterFlush,
    /// The flush goes to positions in the reverse order of arrival.
    FlushReversed,
    /// A restarted replica that lost its memory goes on as if it had not.
    AmnesiaAcknowledges,
    /// Replicas confirm before their journal is synced.
    ConfirmBeforeSync,
    /// Appends complete with acknowledgements from different views.
    MixedViews,
    /// An append completes when one replica acknowledged it.
    OneAcknowledgement,
    /// The tail is the leader's count.
    TailFromLeader,
    /// The tail is the smallest count.
    TailIsMinimum,
    /// The tail is the largest count, whatever the replicas know of.
    TailIsMaximum,
    /// Replicas admit records with gaps in their session's numbers.
    GapsAdmitted,
    /// A shard gives out what is bound but not stable.
    ReadsUnstable,
    /// A fence drops what was bound at or above the stable bound.
    FenceDrops,
    /// The register compares the claimed number only, not the version of the entry.
    ClaimUnchecked,
    /// A flush makes its positions stable before its view is registered.
    StableBeforeRegister,
    /// A controller that gives up an attempt chooses another replica under the same number.
    OneNumberTwice,
    /// A follower acknowledges before its journal is synced; the leader does not.
    FollowerBeforeSync,
    /// A shard that flushes itself fills vacant positions without asking the clients that were
    /// about to write there.
    VacantUnasked,
    /// Sessions that were forgotten to make room for others are taken for new.
    ForgottenWithoutFloor,
    /// Where sessions ended is lost in a view change.
    SessionEndLost,
    /// A session is ended at the number that its leader would go on with, whatever the followers
    /// hold.
    EndedAtLeadersNumber,
    /// A client takes the word of one replica that has forgotten its session for the session's end.
    EndedByOne,
    /// A shard replica answers `Bound` before its backups hold the batch.
    BackupsSkipped,
    /// A fenced backup still obeys the primary of an older view.
    DeposedPrimaryObeyed,
    /// A shard replica that lacks something is counted on as if it held everything.
    MissingCounted,
    /// A shard replica answers reads of what it lacks.
    MissingServed,
    /// A shard replica asks nobody outside its view for what all members lack or have damaged.
    FormerNotAsked,
    /// A shard replica that was away does not ask how far the log was trimmed meanwhile.
    TrimForgotten,
    /// A shard replica does not remember at which position its shard joined: after a restart its
    /// store has to know the owners of all positions from 0 on.
    JoinForgotten,
    /// A client that trims takes the first replica that confirms for all of them.
    TrimHalfConfirmed,
    /// An operator's question what would be lost is sent as if the loss was accepted.
    RecoveryAcceptsUnasked,
    /// A log's status says what is stable by those shards alone that answered.
    StatusOfThoseHeard,
    /// Of what several nodes know of a log, a client is told the oldest.
    OldestKnown,
    /// A read ends where no record is, and none will be, though there are some behind.
    EmptyEndsRead,
    /// Where positions come first, a view may write anew what some replica has trimmed.
    TrimmedFlushed,
    /// Which appends became no-ops is lost in a view change.
    VoidsForgotten,
    /// A shard replica takes the record of an append that became a no-op, and acknowledges it.
    VoidAcknowledged,
    /// A shard replica drops records that have no position although they may still get one.
    ScrubbedEarly,
    /// The replicas of a log's shards go by a `session_idle_positions` of their own nodes, and not
    /// by the log's.
    OwnIdlePositions,
    /// A shard replica drops records that have had no position for long, without asking.
    ScrubbedByTime,
    /// A shard's primary acknowledges a no-op before its backups hold it.
    VoidNotReplicated,
    /// A shard that joins takes its turns from the first position on, not from where it joined.
    PlacedAnew,
    /// A shard that is to leave does so before what it holds is trimmed.
    LeftUntrimmed,
    /// A client appends a record again although its first name may still be bound with it.
    AgainInDoubt,
    /// A shard tells readers the owners of positions that are not final, and a reader goes by them
    /// for ever.
    MapBeyondStable,
    /// In which sessions clients went on with ended ones is lost in a view change.
    SuccessorForgotten,
    /// A client that goes on with a session appends before what the earlier run left is final.
    ResumedUncompleted,
    /// The ordering layer orders what the shards still have of a session that has ended.
    EndedOrdered,
    /// A client is told that a session has ended before the cut is committed that ends it.
    EndUncommitted,
    /// Which sessions ended is lost in a view change where the register remembers them.
    EndsForgotten,
    /// The sequencer of a new view gives positions to sessions that ended in one before.
    FencesForgotten,
    /// A shard replica says which records of an ended session it has before it has all that it
    /// will.
    SoughtEarly,
    /// A client goes on with a session before the register has its end.
    EndUnregistered,
    /// A shard replica tells a client that an append became a no-op before all replicas hold that.
    RefusedEarly,
    /// A sequencer starts a view where its flush began, not where it ended.
    SequencedTooLow,
    /// The head of a chain writes junk over what it holds.
    JunkOverValue,
    /// A fenced replica still lets clients of the view before write.
    WrittenWhileFenced,
    /// A cut counts what one replica of a shard has, whatever the others have.
    CutUnreplicated,
    /// Padding of a shard's local log counts only for replicas that report it, and no backup takes
    /// it.
    PaddingUncounted,
    /// The shards are told of a cut before all members of the ordering layer hold it.
    CutUncommitted,
    /// A shard gives a cut's names the positions after those that it gave out last, whatever the
    /// cut says.
    PositionsByArrival,
    /// The cuts that the chosen member of the ordering layer holds are lost in a view change.
    CutsLost,
    /// A replica that is fenced discards what no cut covered of its local log.
    RestDropped,
    /// A replica goes by what it was told since its process started whether it has what the closing
    /// cut covers.
    ClosedNotDurable,
    /// The next view does not know whose records the closing cut covers.
    ClosedUnlisted,
    /// A shard that has no turns in a window foretells positions all the same.
    LenderPredicts,
    /// A closing cut ends with the last cut for which every shard has met its turns.
    ClosedAtSlowest,
    /// A closing cut gives what follows the positions of turns that are not met.
    ClosedUnpadded,
    /// A replica that restarted takes part in the closing cut as if its local log had been empty.
    RestartedRest,
    /// A shard and the ordering layer take what is submitted again for new.
    SubmittedTwice,
    /// A way that carries nothing but heartbeats is as good as any.
    MutenessUnnoticed,
    /// The register of a node tells those nodes of a deletion that have joined since it restarted,
    /// and no others.
    JoinedForgotten,
    /// A node whose disk was set back goes on as if it held all that it ever acknowledged.
    SetBackUnnoticed,
    /// That a node's messages arrive is no sign that it is there.
    WorkIgnored,
    /// Heartbeats wait behind everything else that a node has to send and to do.
    HeartbeatsBehindRecords,
    /// A node takes what clients bring however many bytes it holds already, and however many wait
    /// for its journal.
    NeverBusy,
    /// A node that has too much waiting for its disk lets every log wait, whichever has how much of
    /// it.
    SharesIgnored,
    /// A client sends a replica that takes part in no view all that it has, named or not.
    IdsSentToFenced,
    /// A session of Scalog goes on at another shard after each stripe, however much it has to
    /// append.
    HopsEachStripe,
    /// Positions are filled a while after they were given out, whether or not their client still
    /// writes them.
    FilledByTheClock,
    /// An attempt at a view is given up when it has taken long, whatever progress it makes.
    AttemptByTheClock,
    /// Batches that were not answered are sent again, all of them, after a time that does not grow.
    ResentWithoutBackoff,
    /// Nobody gets the place of a sequencing replica that is lost for good.
    SequencersUnreplaced,
    /// A view does without the replicas of drained nodes before others hold what they hold.
    DrainedUncopied,
    /// A shard replica that a view does without keeps what that view's replicas trimmed.
    OutsideUntrimmed,
    /// A client sends everything again from a gap on for each message that came behind it.
    WentBackForEach,
    /// A sequencing replica journals again what it holds when it is sent again.
    JournaledAgain,
    /// A node journals each command of a shard replica in full, whatever of it the replica's store
    /// has already.
    AttemptJournaledInFull,
    /// A record store encodes all that it holds at each step, only to learn how long that is.
    MeasuredByEncoding,
    /// A record store keeps the segment that it writes to, however far it is trimmed.
    NewestKept,
    /// Replicas give out what they hold before the last replica of the chain has it.
    ReadFromHead,
    /// Controllers take a node into views whose disk is full.
    FullDiskIgnored,
    /// Records get the room that is kept for what makes room.
    ReserveSpent,
    /// A client that is told to wait goes on waiting, and asks nobody whether there is a newer
    /// view.
    PutOffForEver,
    /// A replica that is new waits for a record that it found damaged as long as for those that it
    /// lacks.
    RepairWaits,
    /// A replica that stands in for a member which is away copies the shard at once.
    StandInCopies,
    /// Controllers do not wait before they replace a member that is away.
    ReplacedAtOnce,
    /// A replica that was replaced is dismissed although another one reads of it.
    NeededRemoved,
    /// A node writes a role's snapshot down for a checkpoint some time after the role was asked for
    /// it.
    SnapshotAhead,
    /// How old records are goes by a clock on the wall as it is.
    AgedByWall,
    /// A log's limits trim what is not final.
    RetainedUnstable,
    /// A log's limits are never applied.
    NeverRetained,
    /// Replicas forget which position was reached when.
    MarksForgotten,
    /// A mark is noted for an earlier time than its own.
    MarkedEarlier,
    /// A log's limit of bytes trims all that is final.
    RetainedTooLittle,
    /// Three quarters of what a limit of bytes allows are kept.
    RetainedThreeQuarters,
    /// A subscription hands over a record before it is known what is at the positions before it.
    HandedOverEarly,
    /// A replica tells readers that the position after some empty ones is empty as well.
    EmptyTooFar,
    /// Names that a cut passes over count as ordered.
    PassedOverOrdered,
    /// A replica says of all that it predicted that it is final.
    HoldsUncommitted,
    /// A primary foretells what it alone has.
    PredictedUnreplicated,
    /// A primary foretells beyond the windows that it was told, as if quotas never changed.
    LeaseIgnored,
    /// The shards are told a window before all members of the ordering layer hold it.
    WindowEarly,
    /// A cut of a window does not wait for a shard that has nothing.
    CutUnmet,
    /// A name that a cut of a window passes over gives up its position to those behind it.
    PassedOverShifts,
    /// The quotas of the next window count as soon as they are decided.
    QuotaAtOnce,
    /// A primary acknowledges what it foretells.
    AcknowledgedOnPrediction,
    /// A reader takes for final what any view holds, whichever predicted it.
    HoldsAnyView,
    /// A reader keeps the predictions of the view before, also where the next one decides.
    OldPredictionsKept,
    /// A reader does not remember that it passed over a position where no record was predicted.
    EmptyNotGiven,
    /// A reader fails all that is not confirmed, whatever turned out different.
    FailTooFar,
    /// A reader fails what a new view wrote anew, before it knows whether that is the same.
    FlushedIsVoid,
    /// A replica of a retired shard gives out what no cut gave a position, where its positions are
    /// empty.
    RetiredKeeps,
    /// A copy of a retired shard does not get from others what it lacks.
    RetiredUncopied,
    /// Cuts that retired shards are owed do not go from view to view.
    OwedForgotten,
    /// A subscription that takes predictions is told no bound where no record lies below.
    EmptyNotTold,
    /// An operator is told that a retired shard is lost although a replica has everything.
    GivenUpWhole,
    /// The history does not say what was given up of a retired shard.
    GivenUpUntold,
    /// The history does not say that a view began after an accepted loss.
    ReassignedUnmarked,
    /// A reader ignores that other records get the positions of records that it has.
    ReassignedIgnored,
    /// A reader that passes over what a shard lost does not look what other shards have before its
    /// end.
    LostBeyondOthers,
    /// A reader of chosen shards skips positions that a view decides which it does not know.
    UnknownViewSkipped,
    /// A replica does not tell readers which view decides what it delivers.
    DecidingViewUntold,
    /// A reader of chosen shards does not ask the register whether one of them has joined.
    JoiningNotAsked,
    /// A subscription receives the result of a read that an earlier subscription, or the same one
    /// before a reset, started.
    StaleReadTaken,
}

/// The configuration of every machine of a node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Bounds.
    pub limits: Limits,
    /// A deliberate defect; none outside the simulator.
    pub mutation: Option<Mutation>,
}

impl Options {
    /// Whether this defect is wanted.
    #[must_use]
    pub fn mutates(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }
}
