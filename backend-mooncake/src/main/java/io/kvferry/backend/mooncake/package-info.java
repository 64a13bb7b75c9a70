// SPDX-License-Identifier: Apache-2.0
/// Mooncake for kvferry: what ServiceLoader finds. The transfer engine lives in `te`, its variant
/// over Mooncake's own library in `nativeengine`, vLLM's MooncakeConnector in `p2p`,
/// MooncakeStoreConnector in `storeconnector`.
@NullMarked
package io.kvferry.backend.mooncake;

import org.jspecify.annotations.NullMarked;
