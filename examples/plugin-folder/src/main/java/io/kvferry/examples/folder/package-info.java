// SPDX-License-Identifier: Apache-2.0
/// A complete KV connector to copy: every block is a file in a folder, named by its hash. It loads
/// and saves within the step, so it needs no leases, holds or threads of its own; only lookups run
/// in the background.
@NullMarked
package io.kvferry.examples.folder;

import org.jspecify.annotations.NullMarked;
