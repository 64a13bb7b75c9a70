// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.exchange;

import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.WorkerContext;

import java.nio.file.Path;
import java.util.List;

/// Implemented by a [io.kvferry.spi.kv.KvConnectorProvider] that can copy prompts between what its
/// connector keeps and folders in the format of another system. A tool calls it (`kvferry import`,
/// `kvferry export`), never an engine; engines may use the same store meanwhile.
public interface CacheExchangeProvider {
    /// Names of the formats, at least one. Constant.
    List<String> exchangeFormats();

    /// Opens what a worker half of this context would save to and load from, and the folder.
    ///
    /// Called on the thread that will use the exchange.
    ///
    /// @param format one of [#exchangeFormats]
    /// @param folder need not exist
    /// @throws KvFerryException UNSUPPORTED or INCOMPATIBLE when this cache or these options cannot
    ///   be exchanged, else as [io.kvferry.spi.kv.KvConnectorProvider#openWorker]
    CacheExchange openExchange(WorkerContext context, String format, Path folder);
}
