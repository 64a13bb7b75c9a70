// SPDX-License-Identifier: Apache-2.0
/// The byte form of whatever crosses a process: [Payload] for plans and reports between the halves
/// of a connector, [WireWriter] and [WireReader] to fill and read one strictly. Little-endian,
/// length-checked, never Java serialisation.
@NullMarked
package io.kvferry.spi.wire;

import org.jspecify.annotations.NullMarked;
