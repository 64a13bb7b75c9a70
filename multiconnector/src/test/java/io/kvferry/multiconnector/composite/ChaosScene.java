// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.kv.KvConnectorProvider;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;

/// Random trees of composites over [ChaosKv] and [ChaosEc]; the same for the same seed in every
/// process.
final class ChaosScene {
    final Random random;
    final List<ChaosKv> leaves = new ArrayList<>();
    final List<ChaosEc> items = new ArrayList<>();
    final ChaosItemLoads itemLoads = new ChaosItemLoads();
    final Map<String, Object> kvOptions;
    final Map<String, Object> ecOptions;
    private int nested;

    /// Dimensions added later use a random generator of their own and do not apply to seeds below
    /// this one, so that seeds that once showed a defect keep their sequence of events.
    private static final int NEWER = 100;

    private final Random newer;
    private final boolean newerKind;

    /// As [#NEWER], for what came after that.
    private static final int NEWEST = 160;

    /// Whether composites are nested wherever they may be.
    private final boolean deep;

    /// As [#NEWEST], for what came after that.
    private static final int LATEST = 200;

    private final Random latest;
    private final boolean latestKind;

    /// As [#LATEST], for what came after that.
    private static final int LAST = 220;

    private final Random last;
    private final boolean lastKind;

    /// As [#LAST], for what came after that.
    private static final int RIVALS = 240;

    /// Seeds of the normal run: of those from [#RIVALS] on five in six have a rivalry, of later
    /// ones half as many.
    private static final int NORMAL = 300;

    private final Random rivals;

    /// Whether requests differ in how urgent they are, and come with others that have small items,
    /// or need items that are seldom loaded.
    final Rivalry rivalry;

    /// What requests compete for.
    enum Rivalry {
        NONE,
        /// Urgent ones take the place of others, which may have rows that those need.
        PRIORITIES,
        /// Small ones with small items come and go while others need the whole encoder cache.
        SMALL_ITEMS,
        /// Loads of items and of blocks fail together, so that items are needed again.
        LOST_ITEMS,
        /// Loads fail in the very step in which requests get rows for what comes behind the loaded
        /// tokens: they need the rows before those again, and have the room themselves.
        OWN_ROWS,
        /// Loads of items are revoked, and not answered: their rows do not come back.
        LOST_ROWS
    }

    /// Whether the engine has a leaf as its connector, and no composite.
    final boolean bare;

    /// Whether there is room for one item and two requests, which compute little in a step: loads
    /// are done while others hold what their requests need.
    final boolean crowded;

    /// @param far whether the worker halves are in other processes
    ChaosScene(long seed, boolean far) {
        random = new Random(seed);
        newer = new Random(seed * 7907);
        newerKind = seed >= NEWER;
        latest = new Random(seed * 7883);
        latestKind = seed >= LATEST;
        last = new Random(seed * 7877);
        lastKind = seed >= LAST;
        rivals = new Random(seed * 7873);
        rivalry = rivalry(seed);
        boolean alone = rivalry == Rivalry.NONE;
        bare = (last(5) == 1 && alone) || rivalry == Rivalry.OWN_ROWS;
        boolean ahead = last(4) == 1 && alone;
        crowded = rivalry == Rivalry.PRIORITIES || (!ahead && !bare && last(3) == 1);
        deep = newer(4) == 1;
        boolean twice = seed >= NEWEST && new Random(seed * 7901).nextBoolean();
        kvOptions = ahead ? kvAhead() : twice ? kvTwice() : kv(2);
        ecOptions = latestKind ? ec(far, 1) : ec(far);
        if (latestKind) {
            leaves.forEach(ChaosKv::foresee);
            items.forEach(ChaosEc::foresee);
        }
        if (rivalry == Rivalry.LOST_ITEMS) {
            leaves.forEach(ChaosKv::failOften);
            items.forEach(ChaosEc::failOften);
        }
        if (rivalry == Rivalry.SMALL_ITEMS) {
            items.forEach(ChaosEc::beSlow);
        } else if (rivalry == Rivalry.LOST_ROWS) {
            items.forEach(ChaosEc::leaveUnanswered);
        }
        if (rivalry == Rivalry.OWN_ROWS) {
            leaves.getFirst().loadInStep();
        } else if (bare) { // what it failed to load it is asked for again
            leaves.getFirst().failOften();
            leaves.getFirst().foreseeOften(true);
        } else if (crowded) {
            leaves.forEach(ChaosKv::beSteady);
        } else if (lastKind) {
            leaves.forEach(leaf -> leaf.hangInClose(far));
        }
    }

    private static Rivalry rivalry(long seed) {
        var all = Rivalry.values();
        boolean none = seed < RIVALS || (seed >= NORMAL && seed / all.length % 2 == 0);
        return none ? Rivalry.NONE : all[(int) (seed % all.length)];
    }

    /// Whether there is room for the largest item and nothing else.
    boolean scarceRows() {
        return crowded
                || switch (rivalry) {
                    case SMALL_ITEMS, OWN_ROWS, LOST_ROWS -> true;
                    case NONE, PRIORITIES, LOST_ITEMS -> false;
                };
    }

    /// A number below `bound`, 0 for the older seeds.
    int newer(int bound) {
        return newerKind ? newer.nextInt(bound) : 0;
    }

    /// As [#newer], for what came after that.
    int latest(int bound) {
        return latestKind ? latest.nextInt(bound) : 0;
    }

    /// Until a child that has thrown is opened again.
    private String pause() {
        return newer.nextInt(4) + "ms";
    }

    /// As [#newer], for what came last.
    int last(int bound) {
        return lastKind ? last.nextInt(bound) : 0;
    }

    /// How urgent the next request is.
    int priority() {
        return rivals.nextInt(leastUrgent() + 1);
    }

    /// Requests that come and go while others wait must not be more urgent: they would go first for
    /// ever, as they should.
    int leastUrgent() {
        return rivalry == Rivalry.PRIORITIES ? 2 : 0;
    }

    /// How long a step waits for a child to be closed.
    private String grace() {
        return lastKind ? last(3) + "ms" : "500ms";
    }

    /// A composite that composes loads of two leaves: one of them fails often, and the other, which
    /// reports the ends of loads that it may be given later, takes over what is missing while it
    /// still loads its own part.
    private Map<String, Object> kvAhead() {
        var failing = leaf();
        var taking = leaf();
        leaves.get(0).failOften();
        leaves.get(1).takeOver();
        leaves.get(1).foreseeOften(false);
        var children = new ArrayList<Map<String, Object>>(List.of(taking, failing));
        if (last(2) == 1) {
            Collections.reverse(children);
        }
        return Map.of(
                "load_policy",
                "compose",
                "reopen_pause",
                pause(),
                "close_grace",
                grace(),
                "connectors",
                children);
    }

    /// A composite of leaves and composites.
    private Map<String, Object> kv(int depth) {
        var children = new ArrayList<Map<String, Object>>();
        int count = 1 + random.nextInt(3);
        for (int i = 0; i < count; i++) {
            if (depth > 0 && (random.nextInt(3) == 0 || deep)) {
                children.add(
                        Map.of(
                                "kv_connector",
                                "MultiConnector",
                                "name",
                                "nested" + nested++,
                                "kv_connector_extra_config",
                                kv(depth - 1)));
            } else {
                children.add(leaf());
            }
        }
        var policies = LoadPolicy.values();
        return Map.of(
                "load_policy",
                policies[random.nextInt(policies.length)]
                        .name()
                        .toLowerCase(Locale.ROOT)
                        .replace('_', '-'),
                "reopen_pause",
                pause(),
                "close_grace",
                grace(),
                "connectors",
                children);
    }

    /// A composite that composes loads of a leaf and of a composite, whose leaves fail often: both
    /// composites try their next child for one request, and what the leaf failed to load goes to
    /// the inner composite, which has tried its next child before.
    private Map<String, Object> kvTwice() {
        var inner = new ArrayList<Map<String, Object>>();
        for (int i = 0; i < 3; i++) {
            inner.add(leaf());
        }
        Map<String, Object> nestedChild =
                Map.of(
                        "kv_connector",
                        "MultiConnector",
                        "name",
                        "nested" + nested++,
                        "kv_connector_extra_config",
                        Map.of("load_policy", "first-hit", "connectors", inner));
        var children = new ArrayList<Map<String, Object>>(List.of(leaf(), nestedChild));
        Collections.shuffle(children, random);
        leaves.forEach(ChaosKv::failOften);
        return Map.of(
                "load_policy",
                "compose",
                "reopen_pause",
                pause(),
                "close_grace",
                grace(),
                "connectors",
                children);
    }

    private Map<String, Object> leaf() {
        var leaf = new ChaosKv("K" + leaves.size(), random.nextLong());
        leaves.add(leaf);
        return Map.of("kv_connector", leaf.name());
    }

    private Map<String, Object> ec(boolean far) {
        var children = new ArrayList<Map<String, Object>>();
        int count = 1 + random.nextInt(2);
        for (int i = 0; i < count; i++) {
            var leaf = new ChaosEc("E" + i, random.nextLong(), far, itemLoads);
            items.add(leaf);
            Map<String, Object> child = Map.of("ec_connector", leaf.name());
            if (newer.nextInt(3) == 0) {
                child =
                        Map.of(
                                "ec_connector",
                                "MultiConnector",
                                "name",
                                "nested" + nested++,
                                "ec_connector_extra_config",
                                Map.of("reopen_pause", pause(), "connectors", List.of(child)));
            }
            children.add(child);
        }
        return Map.of("reopen_pause", pause(), "connectors", children);
    }

    /// A composite of one to three leaves and composites of these.
    private Map<String, Object> ec(boolean far, int depth) {
        var children = new ArrayList<Map<String, Object>>();
        int count = 1 + latest.nextInt(3);
        for (int i = 0; i < count; i++) {
            if (depth > 0 && latest.nextInt(3) == 0) {
                children.add(
                        Map.of(
                                "ec_connector",
                                "MultiConnector",
                                "name",
                                "nested" + nested++,
                                "ec_connector_extra_config",
                                ec(far, depth - 1)));
            } else {
                var leaf = new ChaosEc("E" + items.size(), latest.nextLong(), far, itemLoads);
                items.add(leaf);
                children.add(Map.of("ec_connector", leaf.name()));
            }
        }
        return Map.of("reopen_pause", pause(), "connectors", children);
    }

    /// The leaves beside the plugins of the class path.
    PluginCatalog catalog() {
        var catalog = PluginCatalog.ofClassPath();
        for (var leaf : leaves) {
            catalog = catalog.with(KvConnectorProvider.class, leaf);
        }
        for (var leaf : items) {
            catalog = catalog.with(EcConnectorProvider.class, leaf);
        }
        return catalog;
    }
}
