// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import io.kvferry.backend.nccl.plane.DataPlane.Outcome;

import java.lang.foreign.MemorySegment;
import java.util.BitSet;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;

/// Prompts whose blocks the engine holds until a decoder has got each layer once.
///
/// Threading: any thread; one decoder gets a prompt at a time.
final class OfferedPrompts {
    private final TensorForm form;
    private final Map<String, Offer> offers = new ConcurrentHashMap<>();

    OfferedPrompts(TensorForm form) {
        this.form = form;
    }

    /// One prompt.
    final class Offer {
        private final String transfer;
        private final int[] blocks;
        private final BlockUse use;
        private final BitSet got = new BitSet();

        private Offer(String transfer, int[] blocks, BlockUse use) {
            this.transfer = transfer;
            this.blocks = blocks;
            this.use = use;
        }

        int blocks() {
            return blocks.length;
        }

        /// @return false when the offer is over
        boolean gather(int layer, MemorySegment tensor) {
            return use.copy(() -> form.gather(layer, blocks, tensor));
        }

        /// The decoder has that layer.
        void sent(int layer) {
            boolean all;
            synchronized (got) {
                got.set(layer);
                all = got.cardinality() == form.layers();
            }
            if (all) {
                offers.remove(transfer, this);
                use.finish(new Outcome.Done(form.bytes(blocks.length) * form.layers()));
            }
        }
    }

    /// @return false where the transfer is offered already
    boolean add(String transfer, int[] blocks, BlockUse use) {
        return offers.putIfAbsent(transfer, new Offer(transfer, blocks, use)) == null;
    }

    Optional<Offer> find(String transfer) {
        return Optional.ofNullable(offers.get(transfer));
    }

    /// It is not offered any more.
    void withdraw(String transfer) {
        var offer = offers.remove(transfer);
        if (offer != null) {
            offer.use.cancel();
        }
    }

    void close() {
        offers.keySet().forEach(this::withdraw);
    }
}
