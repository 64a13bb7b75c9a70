// SPDX-License-Identifier: Apache-2.0
/// Registered regions, the open write grants, and who uses them at the moment: whoever takes memory
/// away closes its gate and waits for its users.
@NullMarked
package io.kvferry.backend.mooncake.te.internal.memory;

import org.jspecify.annotations.NullMarked;
