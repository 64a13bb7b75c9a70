// SPDX-License-Identifier: Apache-2.0
/// Mooncake's handshake port, asking and serving side.
@NullMarked
package io.kvferry.backend.mooncake.te.internal.handshake;

import org.jspecify.annotations.NullMarked;
