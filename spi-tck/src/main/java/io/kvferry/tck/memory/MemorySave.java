// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.memory.KvRegion;

import java.lang.foreign.MemorySegment;
import java.util.List;

/// One save of one rank: copies the blocks out of the regions (all at once, or layer by layer),
/// then publishes them.
final class MemorySave {
    private final MemoryPlan.Save plan;
    private final MemoryMover mover;
    private final MemorySegment[][] copies;
    private final boolean[][] taken;
    private final long clearings;

    MemorySave(MemoryPlan.Save plan, MemoryMover mover) {
        this.plan = plan;
        this.mover = mover;
        this.clearings = mover.clearings();
        this.copies = new MemorySegment[mover.groups()][plan.blocks().count()];
        this.taken = new boolean[mover.groups()][];
        for (int group = 0; group < copies.length; group++) {
            var layers = mover.layers(group);
            taken[group] = new boolean[layers.size()];
            long bytes = layers.stream().mapToLong(KvRegion::blockBytes).sum();
            for (int i = 0; i < copies[group].length; i++) {
                copies[group][i] = MemorySegment.ofArray(new byte[Math.toIntExact(bytes)]);
            }
        }
    }

    MemoryPlan.Save plan() {
        return plan;
    }

    /// Copies one layer of every block, unless it has been.
    void takeLayer(int layerIndex) {
        for (int group = 0; group < copies.length; group++) {
            var layers = mover.layers(group);
            for (int slot = 0; slot < layers.size(); slot++) {
                if (layers.get(slot).layerIndex() == layerIndex) {
                    take(group, slot, layers.get(slot));
                }
            }
        }
    }

    void takeAll() {
        for (int group = 0; group < copies.length; group++) {
            List<KvRegion> layers = mover.layers(group);
            for (int slot = 0; slot < layers.size(); slot++) {
                take(group, slot, layers.get(slot));
            }
        }
    }

    /// The same in the background; stops when revoked. Ends the job.
    void takeAll(MemoryJob job) {
        try {
            for (int group = 0; group < copies.length; group++) {
                List<KvRegion> layers = mover.layers(group);
                for (int slot = 0; slot < layers.size() && !job.isRevoked(); slot++) {
                    take(group, slot, layers.get(slot));
                    job.moved(layers.get(slot).blockBytes() * plan.blocks().count());
                }
            }
        } finally {
            job.end();
        }
    }

    private void take(int group, int slot, KvRegion region) {
        if (taken[group][slot]) {
            return;
        }
        taken[group][slot] = true;
        var ids = plan.blocks().ids()[group];
        for (int i = 0; i < ids.length; i++) {
            if (!plan.blocks().has(group, i)) {
                continue;
            }
            MemorySegment.copy(
                    region.segment(),
                    region.offset(ids[i]),
                    copies[group][i],
                    slot * region.blockBytes(),
                    region.blockBytes());
        }
    }

    /// From now on the blocks can be found, once the other ranks have published theirs; unless the
    /// store was emptied since they were computed.
    void publish() {
        if (mover.clearings() != clearings) {
            return;
        }
        for (int group = 0; group < copies.length; group++) {
            long layerBytes = mover.layers(group).getFirst().blockBytes();
            for (int i = 0; i < copies[group].length; i++) {
                if (!plan.blocks().has(group, i)) {
                    continue;
                }
                var checksums = new int[taken[group].length];
                for (int slot = 0; slot < checksums.length; slot++) {
                    checksums[slot] =
                            MemoryStore.Part.checksum(
                                    copies[group][i], slot * layerBytes, layerBytes);
                }
                mover.store(
                        plan.blocks().hashes().get(i),
                        group,
                        new MemoryStore.Part(copies[group][i], checksums));
            }
        }
    }
}
