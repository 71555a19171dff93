app_name = "access"
urlpatterns: list[object] = []
