// SPDX-License-Identifier: Apache-2.0
/// The disk connector's block store against fio on the same folder.
@NullMarked
package io.kvferry.benchmarks.disk;

import org.jspecify.annotations.NullMarked;
