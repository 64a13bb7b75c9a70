// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.backend.disk.store.BlockKey;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.memory.BlockHash;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/// What the scheduler half knows of a request until it is finished.
final class Tracked {
    private final Files files;
    private final List<BlockKey> keys = new ArrayList<>();
    Optional<PrefixProbe> probe = Optional.empty();
    Optional<LoadAssignment> loading = Optional.empty();
    boolean loadFailed;
    int savedBlocks;
    int jobs;

    /// The files of a block: one for each group on each rank.
    record Files(int groups, int ranks) {
        int perBlock() {
            return groups * ranks;
        }

        void addTo(List<BlockKey> keys, BlockHash hash, int position) {
            for (int rank = 0; rank < ranks; rank++) {
                for (int group = 0; group < groups; group++) {
                    keys.add(KvKeys.of(hash, group, rank, position));
                }
            }
        }
    }

    Tracked(Files files) {
        this.files = files;
    }

    /// Names the files of the request's first `blocks` blocks, as far as that is not done.
    void name(RequestView request, int blocks) {
        for (int block = keys.size() / files.perBlock(); block < blocks; block++) {
            files.addTo(keys, request.blockHash(block), block);
        }
    }

    /// The files of blocks `first` to `end` (exclusive), block by block, as far as they are named.
    List<BlockKey> keys(int first, int end) {
        int last = Math.min(end * files.perBlock(), keys.size());
        return keys.subList(Math.min(first * files.perBlock(), last), last);
    }
}
