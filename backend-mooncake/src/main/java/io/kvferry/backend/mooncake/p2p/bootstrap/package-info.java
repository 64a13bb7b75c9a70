// SPDX-License-Identifier: Apache-2.0
/// The bootstrap server, by which decoders find the workers of a prefill engine, its client, and
/// what keeps a worker registered with it.
@NullMarked
package io.kvferry.backend.mooncake.p2p.bootstrap;

import org.jspecify.annotations.NullMarked;
