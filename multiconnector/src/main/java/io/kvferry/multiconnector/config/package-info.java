// SPDX-License-Identifier: Apache-2.0
/// Reads vLLM's `--kv-transfer-config` and `--ec-transfer-config` JSON into
/// [io.kvferry.spi.config.ConnectorConfig], strictly: what is not understood is refused, with
/// advice.
@NullMarked
package io.kvferry.multiconnector.config;

import org.jspecify.annotations.NullMarked;
