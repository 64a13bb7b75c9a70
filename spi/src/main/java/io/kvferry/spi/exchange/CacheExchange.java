// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.exchange;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.memory.BlockHash;

import java.nio.file.Path;
import java.util.List;

/// An open store and a foreign folder, between which the KV of prompts is copied one by one.
///
/// A copy publishes complete data only: after a failure there is the whole prompt (or, in the
/// connector's store, whole blocks of it) or nothing of it.
///
/// Threading: one thread, which may block on both sides until the deadline.
public interface CacheExchange extends AutoCloseable {
    /// Copies a prompt from the folder into the connector's store.
    ///
    /// @throws KvFerryException MISS when the folder does not hold the prompt, INCOMPATIBLE when
    ///   another model's or of another shape, CORRUPT, STORAGE_IO, NO_SPACE, TIMEOUT
    Copied importPrompt(Prompt prompt, Deadline deadline);

    /// Copies a prompt from the connector's store into the folder.
    ///
    /// @throws KvFerryException MISS when a block of it is not in the store, else as
    ///   [#importPrompt]
    Copied exportPrompt(Prompt prompt, Deadline deadline);

    /// Idempotent.
    @Override
    void close();

    /// Result of copying a prompt.
    ///
    /// @param name of the prompt in the folder, empty for one too short to be kept
    /// @param blocks blocks of the prompt that both sides hold now
    /// @param written how many of them the target did not hold before
    record Copied(String name, int blocks, int written) {}

    /// A prompt by everything that a store may know it by.
    ///
    /// @param tokens token ids; not copied, do not change them
    /// @param itemHashes hashes of its multimodal items in order of position
    /// @param blockHashes of the prompt's whole blocks
    @SuppressWarnings("ArrayRecordComponent") // owned by the prompt, never changed
    record Prompt(int[] tokens, List<String> itemHashes, List<BlockHash> blockHashes) {
        public Prompt {
            itemHashes = List.copyOf(itemHashes);
            blockHashes = List.copyOf(blockHashes);
        }
    }

    /// Implemented by a [io.kvferry.spi.kv.KvConnectorProvider] that can copy prompts between what
    /// its connector keeps and folders in the format of another system. A tool calls it (`kvferry
    /// import`, `kvferry export`), never an engine; engines may use the same store meanwhile.
    interface Provider {
        /// Names of the formats, at least one. Constant.
        List<String> exchangeFormats();

        /// Opens what a worker half of this context would save to and load from, and the folder.
        ///
        /// Called on the thread that will use the exchange.
        ///
        /// @param format one of [#exchangeFormats]
        /// @param folder need not exist
        /// @throws KvFerryException UNSUPPORTED or INCOMPATIBLE when this cache or these options
        ///   cannot be exchanged, else as [io.kvferry.spi.kv.KvConnectorProvider#openWorker]
        CacheExchange openExchange(WorkerContext context, String format, Path folder);
    }
}
