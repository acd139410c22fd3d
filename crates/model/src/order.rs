//! The orderings and their properties, in one table.

use std::fmt;
use std::str::FromStr;

use crate::wire::wire_enum;

/// Properties of an ordering. Code tests a property, never the ordering itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Name on the command line and in documents.
    pub name: &'static str,
    /// Description in one sentence.
    pub about: &'static str,
    /// Needs of an application that this ordering suits, for the help text.
    pub wanted: &'static str,
    /// Whether an append returns without a position, because records are ordered later.
    pub is_lazy: bool,
    /// Whether a record's position determines its shard (LazyLog §4.3). Otherwise its client does.
    pub places_by_position: bool,
    /// Whether a sequencer grants positions before records are written, and stores nothing.
    /// Otherwise sequencing replicas hold acknowledged records, or their order, until the shards
    /// do.
    pub places_first: bool,
    /// Whether cuts order the records: a layer above the shards counts durable records.
    pub has_cuts: bool,
    /// Whether each shard's share of the next cuts is fixed in advance, so that positions can be
    /// predicted. Unused shares leave positions empty.
    pub has_quotas: bool,
    /// Part of an append for the sequencing replicas.
    pub announces: Announced,
    /// Whether a no-op fills a position whose record comes too late; the append of that record
    /// fails.
    pub fills_late: bool,
    /// Whether one node has the ordering role, and any node can take it. Otherwise the log's
    /// creation fixes the number of sequencing replicas.
    pub has_one_sequencer: bool,
    /// Whether the ordering role stores more on a node than its incarnation.
    pub keeps_order: bool,
    /// Whether the ordering role remembers a session across views, until `session_idle_positions`
    /// positions have no record of it.
    pub remembers_sessions: bool,
    /// Whether a later run of a program continues its session. Otherwise it continues in another
    /// session, the successor.
    pub continues_sessions: bool,
    /// Whether an oversized record gets its number before its rejection, which ends its session.
    /// Otherwise its client rejects it before it gets a number.
    pub numbers_refused: bool,
}

/// Part of an append that its client sends to the sequencing replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// The record itself.
    Record,
    /// The record's id and shard.
    Id,
    /// Nothing.
    Nothing,
}

/// Numbers of orderings, on the wire and on disk, are never reused.
macro_rules! orders {
    ($($(#[$attribute:meta])* $number:literal => $order:ident { $($property:ident: $value:expr),* $(,)? })*) => {
        /// The ordering of a log.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Order {
            $($(#[$attribute])* $order,)*
        }

        impl Order {
            /// Every ordering.
            pub const ALL: [Self; [$($number),*].len()] = [$(Self::$order),*];

            /// The properties of this ordering.
            #[must_use]
            pub const fn properties(self) -> Properties {
                match self {
                    $(Self::$order => Properties { $($property: $value),* },)*
                }
            }
        }

        wire_enum! { Order { $($number => $order {}),* } }
    };
}

orders! {
    /// Lazy: records pass through the sequencing layer to shards that do not order (LazyLog §4).
    1 => ErwinBb {
        name: "erwin-bb",
        about: "an append is durable first and ordered later; its record passes through the sequencing replicas, and shards take turns",
        wanted: "appends that return first, with small lines and without a choice of the shard",
        is_lazy: true,
        places_by_position: true,
        places_first: false,
        has_cuts: false,
        has_quotas: false,
        announces: Announced::Record,
        fills_late: false,
        has_one_sequencer: false,
        keeps_order: true,
        remembers_sessions: true,
        continues_sessions: true,
        numbers_refused: true,
    }
    /// Lazy, directly to a shard of the client's choice; only ids pass through the sequencing layer
    /// (LazyLog §5).
    #[default]
    2 => ErwinSt {
        name: "erwin-st",
        about: "an append is durable first, and its record goes straight to a shard that its client chooses",
        wanted: "appends that return first and get their order in the background (the usual case)",
        is_lazy: true,
        places_by_position: false,
        places_first: false,
        has_cuts: false,
        has_quotas: false,
        announces: Announced::Id,
        fills_late: true,
        has_one_sequencer: false,
        keeps_order: true,
        remembers_sessions: true,
        continues_sessions: false,
        numbers_refused: false,
    }
    /// Position first; then the client writes the record down its shard's chain (Corfu, NSDI '12).
    3 => Corfu {
        name: "corfu",
        about: "a record gets its position first; then its client writes it to the replicas of the position's shard, one after another",
        wanted: "appends that return with their position, few at a time (the log of a database)",
        is_lazy: false,
        places_by_position: true,
        places_first: true,
        has_cuts: false,
        has_quotas: false,
        announces: Announced::Nothing,
        fills_late: true,
        has_one_sequencer: true,
        keeps_order: false,
        remembers_sessions: false,
        continues_sessions: false,
        numbers_refused: false,
    }
    /// Durable first, on a shard of the client's choice; the next committed cut gives the position
    /// (Scalog, NSDI '20).
    4 => Scalog {
        name: "scalog",
        about: "a record is durable first, on a shard of its client's choice; a cut in each interval orders the new records of all shards",
        wanted: "appends that return with their position, many at a time",
        is_lazy: false,
        places_by_position: false,
        places_first: false,
        has_cuts: true,
        has_quotas: false,
        announces: Announced::Nothing,
        fills_late: false,
        has_one_sequencer: false,
        keeps_order: true,
        remembers_sessions: true,
        continues_sessions: false,
        numbers_refused: false,
    }
    /// Like Scalog with fixed quotas: a durable record's position is known (SpecLog's Belfast, OSDI
    /// '25).
    5 => Belfast {
        name: "belfast",
        about: "a record is durable first, on a shard of its client's choice; the shard predicts its position at once, and a cut confirms it",
        wanted: "readers that compute early on an expected order, and undo a wrong one",
        is_lazy: false,
        places_by_position: false,
        places_first: false,
        has_cuts: true,
        has_quotas: true,
        announces: Announced::Nothing,
        fills_late: false,
        has_one_sequencer: false,
        keeps_order: true,
        remembers_sessions: true,
        continues_sessions: false,
        numbers_refused: false,
    }
}

impl Order {
    /// See [`Properties::places_by_position`].
    #[must_use]
    pub const fn places_by_position(self) -> bool {
        self.properties().places_by_position
    }

    /// See [`Properties::is_lazy`].
    #[must_use]
    pub const fn is_lazy(self) -> bool {
        self.properties().is_lazy
    }

    /// See [`Properties::places_first`].
    #[must_use]
    pub const fn places_first(self) -> bool {
        self.properties().places_first
    }

    /// See [`Properties::has_cuts`].
    #[must_use]
    pub const fn has_cuts(self) -> bool {
        self.properties().has_cuts
    }

    /// See [`Properties::has_quotas`].
    #[must_use]
    pub const fn has_quotas(self) -> bool {
        self.properties().has_quotas
    }

    /// Whether sequencing replicas keep a record until its shard stores it.
    #[must_use]
    pub fn keeps_records(self) -> bool {
        let Properties { announces, keeps_order, .. } = self.properties();
        announces == Announced::Record && keeps_order
    }

    /// See [`Properties::announces`].
    #[must_use]
    pub const fn announces(self) -> Announced {
        self.properties().announces
    }

    /// Names of the orderings that satisfy the predicate, as "a, b or c".
    #[must_use]
    pub fn names_where(is_one: impl Fn(Properties) -> bool) -> String {
        let all = Self::ALL.map(Self::properties).into_iter().filter(|properties| is_one(*properties));
        let names: Vec<&str> = all.map(|properties| properties.name).collect();
        match names.as_slice() {
            [before @ .., last] if !before.is_empty() => format!("{} or {last}", before.join(", ")),
            _ => names.concat(),
        }
    }
}

impl Properties {
    /// Each property in words and its value, for documents.
    #[must_use]
    pub fn in_words(&self) -> Vec<(&'static str, &'static str)> {
        // Each property is in one of these patterns and in the list below.
        let Self { name: _, about, wanted, is_lazy, places_by_position, places_first, .. } = *self;
        let Self {
            has_cuts,
            has_quotas,
            announces,
            fills_late,
            has_one_sequencer,
            keeps_order,
            remembers_sessions,
            ..
        } = *self;
        let Self { continues_sessions, numbers_refused, .. } = *self;
        let holds = |holds: bool| if holds { "yes" } else { "no" };
        let announced = match announces {
            Announced::Record => "the record",
            Announced::Id => "its id and its shard",
            Announced::Nothing => "nothing",
        };
        vec![
            ("in one sentence", about),
            ("for applications that want", wanted),
            ("an append is acknowledged before it has a position", holds(is_lazy)),
            ("the position determines the shard; otherwise the client chooses it", holds(places_by_position)),
            ("a position is assigned before its record is written", holds(places_first)),
            ("cuts order records, at most one per interval", holds(has_cuts)),
            ("positions are predicted before a cut; unused quota leaves empty positions", holds(has_quotas)),
            ("part of an append that its client sends to the sequencing replicas", announced),
            (
                "a record that arrives too late: its position gets a no-op, and its append fails",
                holds(fills_late),
            ),
            ("one node orders, and any node can", holds(has_one_sequencer)),
            ("the ordering role keeps state besides its incarnation", holds(keeps_order)),
            ("the ordering role remembers sessions across views", holds(remembers_sessions)),
            (
                "a later run of a program continues its session; otherwise it uses a successor",
                holds(continues_sessions),
            ),
            (
                "an oversized record ends its session; otherwise its client rejects it first",
                holds(numbers_refused),
            ),
        ]
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.properties().name)
    }
}

impl FromStr for Order {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|order| order.properties().name == name).ok_or_else(|| {
            let known = Self::ALL.map(|order| order.properties().name);
            format!("unknown order '{name}'; known: {}", known.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ordering_is_known_by_its_name() {
        for order in Order::ALL {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        let unknown = "erwin".parse::<Order>().expect_err("there is none of that name");
        let known = Order::ALL.map(|order| order.properties().name).join(", ");
        assert_eq!(unknown, format!("unknown order 'erwin'; known: {known}"));
    }

    #[test]
    fn names_are_listed_as_in_a_text() {
        let listed = |names: &[&str]| Order::names_where(|order| names.contains(&order.name));
        assert_eq!(listed(&["erwin-st", "erwin-bb", "scalog"]), "erwin-bb, erwin-st or scalog");
        assert_eq!(listed(&["scalog", "corfu"]), "corfu or scalog");
        assert_eq!(listed(&["scalog"]), "scalog");
        assert_eq!(Order::names_where(|order| order.name.is_empty()), "");
    }

    #[test]
    fn properties_agree_with_one_another() {
        for properties in Order::ALL.map(Order::properties) {
            let Properties { name, is_lazy, announces, keeps_order, has_one_sequencer, .. } = properties;
            assert!(
                !is_lazy || announces != Announced::Nothing,
                "{name}: acknowledged by replicas that know it"
            );
            assert!(!is_lazy || keeps_order, "{name}: acknowledged and lost");
            assert!(!has_one_sequencer || !keeps_order, "{name}: kept, and lost with its only keeper");
        }
    }
}
