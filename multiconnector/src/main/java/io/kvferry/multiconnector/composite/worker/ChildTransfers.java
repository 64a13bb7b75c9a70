// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.worker;

import io.kvferry.multiconnector.composite.wire.ChildNames;
import io.kvferry.multiconnector.composite.wire.CompositePayload;
import io.kvferry.multiconnector.composite.wire.RecentIds;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/// Tracks the transfers that children have open on one rank and routes revocations. For children
/// that are off it produces the completions itself.
///
/// Threading: the rank's step thread only.
final class ChildTransfers {
    private final ChildNames names;
    private final int rank;

    /// Children that consist of others.
    private final BitSet composites = new BitSet();

    /// Parts that the composite has revoked and that have not ended.
    private final Set<TransferId> withdrawn = new HashSet<>(0);

    /// Why a child is off, here or on another rank; null while it is in use.
    private final @Nullable Failure[] off;

    /// Children whose halves are still being closed: what they have open has not ended.
    private final BitSet closing = new BitSet();

    /// Revocations of transfers that are not open, received while the child's half was closing.
    /// Key: outside id, value: child. Answered once the half is closed.
    private final Map<TransferId, Integer> unanswered = new HashMap<>(0);

    /// Open transfers. Key: outside id, value: child.
    private final Map<TransferId, Integer> open = new LinkedHashMap<>();

    /// Ended on this rank before a plan opened them.
    private final RecentIds early = new RecentIds();

    /// The parts of the composite's own transfers, ended ones included, until the scheduler half
    /// closes them.
    private final Map<TransferId, List<TransferId>> parts = new HashMap<>();

    /// Completions of the composite itself, to be reported.
    private List<Completion> own = new ArrayList<>();

    ChildTransfers(ChildNames names, int rank) {
        this.names = names;
        this.rank = rank;
        this.off = new Failure[names.count()];
    }

    boolean isOff(int child) {
        return off[child] != null;
    }

    /// The child has another half.
    void use(int child) {
        off[child] = null;
    }

    /// The child's half was given up and is still closing. It is not called any more but may still
    /// touch the blocks of its open transfers. [#giveUp] follows once it is closed.
    void closing(int child, Failure why) {
        off[child] = why;
        closing.set(child);
    }

    /// The child's half is closed: fails all its open transfers on this rank.
    void giveUp(int child, Failure why) {
        off[child] = why;
        if (closing.get(child)) {
            closing.clear(child);
            unanswered
                    .entrySet()
                    .removeIf(
                            entry -> entry.getValue() == child && own.add(revoked(entry.getKey())));
        }
        open.entrySet()
                .removeIf(entry -> {
                    if (entry.getValue() == child) {
                        withdrawn.remove(entry.getKey());
                        own.add(failed(entry.getKey(), why));
                        return true;
                    }
                    return false;
                });
    }

    private Completion revoked(TransferId id) {
        return new Completion(id, rank, new Completion.Revoked());
    }

    private Completion failed(TransferId id, Failure failure) {
        return new Completion(id, rank, new Completion.Failed(failure, List.of()));
    }

    /// A plan opens a transfer of a child.
    void open(CompositePayload.Open opened) {
        if (!opened.whole().equals(opened.part())) { // a lease is nobody's part
            parts.computeIfAbsent(opened.whole(), _ -> new ArrayList<>(1)).add(opened.part());
        }
        composites.set(opened.child(), opened.composite() || composites.get(opened.child()));
        if (early.remove(opened.part())) {
            return;
        }
        var failure = off[opened.child()];
        if (failure == null) {
            open.put(opened.part(), opened.child());
        } else {
            own.add(failed(opened.part(), failure));
        }
    }

    /// The revocations for each child, from those of the engine and of the composite itself.
    List<List<TransferId>> revocations(List<TransferId> revoked, List<TransferId> byComposite) {
        var byChild = new ArrayList<List<TransferId>>(names.count());
        for (int i = 0; i < names.count(); i++) {
            byChild.add(revoked.isEmpty() && byComposite.isEmpty() ? List.of() : new ArrayList<>());
        }
        for (var part : byComposite) {
            var owner = open.get(part);
            if (owner != null) { // otherwise its child is off and the part has failed
                withdrawn.add(part);
                revoke(part, owner, byChild);
            }
        }
        for (var id : revoked) {
            int child = names.childOf(id);
            if (child >= 0) {
                revoke(id, child, byChild);
                continue;
            }
            var known = parts.get(id);
            if (known == null) {
                own.add(revoked(id));
                continue;
            }
            for (var part : known) {
                var owner = open.get(part);
                if (owner != null && !withdrawn.contains(part)) {
                    revoke(part, owner, byChild);
                }
            }
        }
        return byChild;
    }

    private void revoke(TransferId id, int child, List<List<TransferId>> byChild) {
        if (off[child] == null) {
            byChild.get(child).add(names.inward(id));
        } else if (!closing.get(child)) {
            own.add(revoked(id));
        } else if (!open.containsKey(id)) { // otherwise it fails once the half is closed
            unanswered.put(id, child);
        }
    }

    /// A transfer of the composite, or a lease, is over.
    void close(TransferId id) {
        for (var part : parts.getOrDefault(id, List.of())) {
            open.remove(part);
            withdrawn.remove(part);
        }
        parts.remove(id);
        open.remove(id);
    }

    /// Records that a child reported the end of a transfer.
    ///
    /// @return whether to report it to the engine. False for a load that the child does not have
    ///   open on this rank: such a completion could end a later load with the same id before this
    ///   rank has run it
    boolean ended(int child, TransferId outward) {
        withdrawn.remove(outward);
        if (open.remove(outward) == null) {
            if (isUnknownLoad(child, outward)) {
                return false;
            }
            early.add(outward);
        }
        return true;
    }

    /// A nested composite has already filtered its children's completions, and reports them under
    /// their own names. Whether a child is a composite is taken from the scheduler half, because
    /// the class of a worker half does not show it for composites of other plugins.
    private boolean isUnknownLoad(int child, TransferId outward) {
        return outward.direction() == TransferId.Direction.LOAD
                && !(composites.get(child) && !names.inward(outward).child().isEmpty());
    }

    /// Adds what the composite itself has to report.
    void drainOwn(List<Completion> completions) {
        if (!own.isEmpty()) {
            completions.addAll(own);
            own = new ArrayList<>();
        }
    }
}
