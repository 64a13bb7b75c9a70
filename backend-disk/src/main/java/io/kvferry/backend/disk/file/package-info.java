// SPDX-License-Identifier: Apache-2.0
/// The `FILE` transfer backend: moves bytes between host memory and ranges of files on a small pool
/// of threads.
@NullMarked
package io.kvferry.backend.disk.file;

import org.jspecify.annotations.NullMarked;
