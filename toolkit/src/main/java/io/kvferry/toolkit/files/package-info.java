// SPDX-License-Identifier: Apache-2.0
/// Error messages for file operations, and private folders, shared by all plugins.
@NullMarked
package io.kvferry.toolkit.files;

import org.jspecify.annotations.NullMarked;
