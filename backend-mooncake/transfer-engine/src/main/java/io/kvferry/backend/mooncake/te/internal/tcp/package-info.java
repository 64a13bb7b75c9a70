// SPDX-License-Identifier: Apache-2.0
/// The data port: Mooncake's TCP protocol in both versions and kvferry's batch messages, asking and
/// serving side.
@NullMarked
package io.kvferry.backend.mooncake.te.internal.tcp;

import org.jspecify.annotations.NullMarked;
