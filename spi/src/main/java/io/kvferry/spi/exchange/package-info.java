// SPDX-License-Identifier: Apache-2.0
/// Copies of prompts between what a KV connector keeps and folders of another system, outside of
/// any engine. A [io.kvferry.spi.kv.KvConnectorProvider] that can do that also is a
/// [CacheExchange.Provider].
@NullMarked
package io.kvferry.spi.exchange;

import org.jspecify.annotations.NullMarked;
