//! The orderings, and what each of them is: one table, which everything that lists or tells them
//! apart reads.

use std::fmt;
use std::str::FromStr;

use crate::wire::wire_enum;

/// The properties of an ordering. Code that depends on the ordering asks for one of them, and never
/// which ordering it is: so each says what somebody needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Its name, on the command line and in documents.
    pub name: &'static str,
    /// Its description, in one sentence.
    pub about: &'static str,
    /// The wish of an application that should choose it.
    pub wanted: &'static str,
    /// Whether records are ordered after they were acknowledged: an append returns without a
    /// position.
    pub is_lazy: bool,
    /// Whether a record's position says on which shard it is (LazyLog §4.3). Otherwise its client
    /// chose one.
    pub places_by_position: bool,
    /// Whether positions are given out before records are written, by one sequencer, which holds
    /// nothing. Otherwise sequencing replicas hold what was acknowledged, or its order, until the
    /// shards have it.
    pub places_first: bool,
    /// Whether records are ordered by cuts: a layer above the shards counts what is durable on
    /// them.
    pub has_cuts: bool,
    /// Whether the shards' parts of the next cuts are fixed in advance, so that a record's position
    /// can be told before a cut orders it. What a shard does not bring leaves positions empty.
    pub has_quotas: bool,
    /// The part of an append that its client gives to the sequencing replicas.
    pub announces: Announced,
    /// Whether the position of a record that comes too late is filled with a no-op: its append
    /// fails for certain.
    pub fills_late: bool,
    /// Whether the role that orders is on one node, and any node is as good as another. Otherwise
    /// it is on as many as the log was created with.
    pub has_one_sequencer: bool,
    /// Whether the role that orders remembers anything beyond its incarnation on a node.
    pub keeps_order: bool,
    /// Whether it remembers sessions for longer than a view, until so many positions were bound
    /// without them as the log says.
    pub remembers_sessions: bool,
    /// Whether a later run of a program goes on with its session itself. Otherwise that ends, and
    /// the run goes on in a successor.
    pub continues_sessions: bool,
    /// Whether a record that is larger than the log allows has a number before it is refused, which
    /// ends its session. Otherwise its client refuses it before.
    pub numbers_refused: bool,
}

/// The part of an append that sequencing replicas get from its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// The record itself.
    Record,
    /// Its name, and on which shard its client puts it.
    Id,
    /// Nothing.
    Nothing,
}

/// The orderings, in the order of their numbers on the wire and on disk. These are never used for
/// another ordering.
macro_rules! orders {
    ($($(#[$attribute:meta])* $number:literal => $order:ident { $($property:ident: $value:expr),* $(,)? })*) => {
        /// When order is paid for.
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
    /// Lazily, with records passing through the sequencing layer to shards that are black boxes
    /// (LazyLog §4).
    1 => ErwinBb {
        name: "erwin-bb",
        about: "an append is durable first, and its record passes through the sequencing replicas to shards that take turns",
        wanted: "durable appends that return early, with small records and nothing to choose: records take turns on the shards",
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
    /// Lazily, with records going straight to a shard of the client's choice, and only their names
    /// through the sequencing layer (LazyLog §5).
    #[default]
    2 => ErwinSt {
        name: "erwin-st",
        about: "an append is durable first, and its record goes straight to a shard that its client chooses",
        wanted: "the fastest durable appends, and order when a reader needs it (the usual case)",
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
    /// First: a record gets its position, and then its client writes it down the chain of the
    /// position's shard (Corfu, NSDI '12).
    3 => Corfu {
        name: "corfu",
        about: "a record gets its position first, and then its client writes it to the position's shard, replica by replica",
        wanted: "every position with its receipt, and few records at a time (a database's log)",
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
    /// After it is durable: a record goes to a shard of its client's choice, and gets its position
    /// with the next committed cut (Scalog, NSDI '20).
    4 => Scalog {
        name: "scalog",
        about: "a record is durable on a shard that its client chooses, and then ordered with all others, once in each interval",
        wanted: "every position with its receipt, and many records at a time",
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
    /// As with Scalog, by cuts whose quotas are fixed in advance: a record's position is known when
    /// it is durable (SpecLog's Belfast, OSDI '25).
    5 => Belfast {
        name: "belfast",
        about: "a record is durable on a shard that its client chooses, where its position is known at once, and ordered a little later",
        wanted: "readers that compute on records before they are ordered, and confirm or undo later",
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

    /// Whether sequencing replicas keep the record of each append until its shard has it.
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

    /// The names of all orderings for which this is true, as a text lists them.
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
    /// Each property in words, for documents: what it says, and whether it holds, or what it is.
    #[must_use]
    pub fn in_words(&self) -> Vec<(&'static str, &'static str)> {
        // Naming all of them, so that none is forgotten.
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
            Announced::Id => "its id, and its shard",
            Announced::Nothing => "nothing",
        };
        vec![
            ("in one sentence", about),
            ("for those who want", wanted),
            ("an append is acknowledged before it has a position", holds(is_lazy)),
            (
                "a position says which shard its record is on; otherwise the client chooses",
                holds(places_by_position),
            ),
            ("a position is given out before its record is written", holds(places_first)),
            ("cuts order records, at most one in each interval", holds(has_cuts)),
            (
                "a position is predicted before a cut assigns it; unused positions are empty",
                holds(has_quotas),
            ),
            ("the sequencing replicas get of an append", announced),
            (
                "the position of a record that comes too late is filled, and its append fails",
                holds(fills_late),
            ),
            ("one node orders, and any node can", holds(has_one_sequencer)),
            ("the role that orders outlives its process", holds(keeps_order)),
            ("it remembers sessions for longer than a view", holds(remembers_sessions)),
            (
                "a later run continues with its session itself; otherwise with a successor",
                holds(continues_sessions),
            ),
            (
                "a record that is too large ends its session; otherwise its client refuses it",
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
