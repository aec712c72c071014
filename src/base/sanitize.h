/* What MemorySanitizer cannot see by itself: nothing in any other build. */
#ifndef LS_BASE_SANITIZE_H
#define LS_BASE_SANITIZE_H

#if defined(__has_feature)
#if __has_feature(memory_sanitizer)
#include <sanitizer/allocator_interface.h>
#include <sanitizer/msan_interface.h>
#define LS_UNWRITTEN(pointer, bytes) __msan_poison((pointer), (bytes))
#define LS_WRITTEN(pointer, bytes) __msan_unpoison((pointer), (bytes))
#define LS_FREED(pointer)                                                                          \
    (__sanitizer_get_ownership(pointer)                                                            \
         ? __msan_unpoison((pointer), __sanitizer_get_allocated_size(pointer))                     \
         : (void)0)
#endif
#endif

#ifndef LS_WRITTEN
#define LS_UNWRITTEN(pointer, bytes) ((void)0) /* new memory, whatever it held before */
#define LS_WRITTEN(pointer, bytes) ((void)0)   /* by a library built without the sanitizer */
#define LS_FREED(pointer) ((void)0)            /* such a library may get it next */
#endif

#endif
